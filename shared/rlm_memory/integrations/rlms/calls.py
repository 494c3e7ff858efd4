"""Calls whose results are journalled: of models, and of custom tools."""

from __future__ import annotations

import asyncio
import copy
import functools
import hashlib
import json
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from rlm_memory.checkpoints import RLMSession, Unrestored
from rlm_memory.integrations.rlms.interface import BaseLM, ModelUsageSummary, UsageSummary

_PREVIEW: Final = 200


class JournalledLM(BaseLM):  # type: ignore[misc]  # rlms has no types
    """A client whose replies are journalled in a session, and counted there."""

    def __init__(self, client: Any, session: RLMSession, pool: Executor | None = None) -> None:
        super().__init__(model_name=client.model_name, timeout=client.timeout, sampling_args=client.sampling_args)
        self._client = client
        self._session = session
        self._pool = pool
        self._last = ModelUsageSummary(0, 0, 0)

    def completion(self, prompt: Any, model: str | None = None) -> str:
        """Return the reply to a prompt: the one that the journal has, if it had arrived before the process died."""
        name = model or self.model_name

        def ask() -> dict[str, Any]:
            # A client notes the usage of its last call on itself. A copy has one call, whatever other threads ask.
            client = copy.copy(self._client)
            text = client.completion(prompt, model) if model else client.completion(prompt)
            usage = client.get_last_usage()
            self._session.add_usage(name, usage.total_input_tokens, usage.total_output_tokens, usage.total_cost)
            return {"text": text, "usage": usage.to_dict()}

        reply = self._session.call("llm", {"model": name, **_described(prompt)}, ask)
        self._last = ModelUsageSummary.from_dict(reply["usage"])
        text: str = reply["text"]
        return text

    async def acompletion(self, prompt: Any, model: str | None = None) -> str:
        """Return what `completion` returns, from a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.completion, prompt, model)

    def get_usage_summary(self) -> Any:
        """Return the usage of the whole session: of all its models, its children, and earlier processes."""
        return UsageSummary(
            {
                model: ModelUsageSummary(
                    sums["calls"], sums["input_tokens"], sums["output_tokens"], sums["cost"] or None
                )
                for model, sums in self._session.usage["models"].items()
            }
        )

    def get_last_usage(self) -> Any:
        """Return the usage of the last reply."""
        return self._last


class Tool:
    """A custom tool whose finished calls are not made again. `session` tells which one is running, if any is."""

    def __init__(
        self, name: str, function: Callable[..., Any], *, idempotent: bool, session: Callable[[], RLMSession | None]
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._name = name
        self._idempotent = idempotent
        self._session = session

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Return what the function returns, or returned in a process that has died.

        Raises:
            OperationError: A process died during this very call, and the tool must not be called twice.
        """
        session = self._session()
        if session is None:
            return self.function(*arguments, **named)
        result = session.call(
            f"tool {self._name}",
            [arguments, named],
            lambda: self.function(*arguments, **named),
            idempotent=self._idempotent,
        )
        if isinstance(result, Unrestored) and self._idempotent:  # the journal cannot hold what it returns
            return self.function(*arguments, **named)
        return result


def digest(value: Any) -> str:
    """Return a hash of a value that JSON can hold, as a prompt is."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _described(prompt: Any) -> dict[str, Any]:
    """Return what the journal has of a prompt: enough to know it again, and for a person to know which it was."""
    last = prompt[-1].get("content") if isinstance(prompt, list) and prompt else prompt
    return {"sha256": digest(prompt), "begins": str(last)[:_PREVIEW]}
