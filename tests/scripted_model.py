"""A chat model that answers what a test has written down, and keeps what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

Line: TypeAlias = "str | AIMessage | Exception | Callable[[list[BaseMessage]], str | AIMessage]"


class ScriptedModel(BaseChatModel):
    """Says one line a call: a text, a message, an error to raise, or a function of the messages; "ok" at the end."""

    script: list[Any] = Field(default_factory=list)
    asked: list[list[BaseMessage]] = Field(default_factory=list)
    tools: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        self.tools[:] = tools
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        self.asked.append(messages)
        line: Line = self.script.pop(0) if self.script else "ok"
        if isinstance(line, Exception):
            raise line
        said = line(messages) if callable(line) else line
        message = AIMessage(said) if isinstance(said, str) else said
        return ChatResult(generations=[ChatGeneration(message=message)])

    def system(self, call: int = -1) -> str:
        """Return the system message of a call."""
        return "\n".join(message.text for message in self.asked[call] if isinstance(message, SystemMessage))


def call(name: str, **arguments: Any) -> AIMessage:
    """Return the message of a model that calls a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call {name}"}])
