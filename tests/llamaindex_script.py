"""A language model of LlamaIndex that follows a script: real agents and engines run on it without a network."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM

Line: TypeAlias = "str | ToolCallBlock | Exception | Callable[[Sequence[ChatMessage]], Line] | list[str | Exception]"
"""An answer, a call of a tool, an error; what makes one of the prompt; the pieces of a stream, which may break off."""


def call(tool: str, **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(tool_name=tool, tool_kwargs=arguments, tool_call_id=f"call-of-{tool}")


class Script:
    """The lines of a model, one for each prompt; the last one is said again and again. `prompts` are those it got."""

    def __init__(self, *lines: Line) -> None:
        self._lines = list(lines)
        self.prompts: list[list[ChatMessage]] = []

    @property
    def texts(self) -> list[str]:
        """The prompts as texts."""
        return ["\n".join(str(message) for message in prompt) for prompt in self.prompts]

    def llm(self) -> MockFunctionCallingLLM:
        return MockFunctionCallingLLM(response_generator=self._answer, is_chat_model=True)

    def _answer(self, messages: Sequence[ChatMessage], **_: Any) -> Any:
        self.prompts.append([message.model_copy(deep=True) for message in messages])
        line = self._lines.pop(0) if len(self._lines) > 1 else self._lines[0]
        while callable(line):
            line = line(messages)
        match line:
            case Exception():
                raise line
            case ToolCallBlock():
                return ChatMessage(role="assistant", blocks=[line])
            case list():
                return _Pieces(line)
        return ChatMessage(role="assistant", blocks=[TextBlock(text=line)])


class _Pieces:
    """A stream for both colours, which the mock asks for without telling which one it wants."""

    def __init__(self, pieces: list[str | Exception]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Generator[ChatMessage, None, None]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield ChatMessage(role="assistant", content=piece)

    async def __aiter__(self) -> AsyncGenerator[ChatMessage, None]:
        for message in self:
            yield message
