"""LlamaIndex's side of a provider that counts tokens: a scripted model whose replies tell what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, LLMMetadata
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.llms.mock import MockFunctionCallingLLM

from llamaindex_script import Line, Script


class PaidLLM(MockFunctionCallingLLM):
    """Says the lines of a script, each for 10 tokens and 5; `told` is what else its replies have in `raw`."""

    told: dict[str, Any] = {}  # noqa: RUF012  # a field of a model

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, is_chat_model=True, model_name="model-1")

    def _reply(self, messages: Sequence[ChatMessage], **options: Any) -> ChatResponse:
        message = self.response_generator(messages, **options)
        assert isinstance(message, ChatMessage)
        raw = {"model": "model-1", "usage": {"prompt_tokens": 10, "completion_tokens": 5}, **self.told}
        return ChatResponse(message=message, delta=message.content or "", raw=raw)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return self._reply(messages, **kwargs)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return self.chat(messages, **kwargs)  # as some do: one call that is two spans

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        def pieces() -> Any:
            yield self._reply(messages, **kwargs)

        return pieces()

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        async def pieces() -> Any:
            yield self._reply(messages, **kwargs)

        return pieces()


def paid(*lines: Line, **told: Any) -> PaidLLM:
    return PaidLLM(response_generator=Script(*lines)._answer, told=told)
