"""An `RLM` of the package `rlms` whose completions survive their process.

What rlms offers to others, its logger, sees every iteration and can resume none. So this attaches where iterations are
made: `_spawn_completion_context`, `_setup_prompt`, `_completion_turn` and `_subcall` of `rlm.RLM`, and the scaffold of
`LocalREPL`. These are private there: the extra pins the versions, and tests hold the installed one to what is used.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import hashlib
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from rlm_memory.checkpoints import CheckpointNotFoundError, CheckpointStore, RLMSession, Unrestored
from rlm_memory.errors import InvalidInputError, MissingExtraError

try:
    import rlm.core.rlm as runtime
    from rlm.clients.base_lm import BaseLM
    from rlm.core.types import ModelUsageSummary, RLMChatCompletion, UsageSummary
    from rlm.environments.base_env import extract_tool_value
    from rlm.environments.local_repl import _AnswerDict
    from rlm.utils.prompts import build_user_prompt
except ImportError as _error:
    raise MissingExtraError("rlm_memory.integrations.rlms", "rlms") from _error

_SCAFFOLD: Final = {
    "SHOW_VARS": "_show_vars",
    "llm_query": "_llm_query",
    "llm_query_batched": "_llm_query_batched",
    "rlm_query": "_rlm_query",
    "rlm_query_batched": "_rlm_query_batched",
}
"""The functions that the runtime puts into every namespace, and the methods of its REPL that they are."""

_AT_ONCE: Final = 16
_PREVIEW: Final = 200


class RLM(runtime.RLM):  # type: ignore[misc]  # rlms has no types
    """An `rlm.RLM` that saves its completions and goes on with them in another process.

    `completion` begins a session of its own for each prompt. When the process dies, the same call in a new process goes
    on from the newest checkpoint: with the variables of the REPL, the messages and the cost; replies of models that had
    arrived are taken from the journal and not paid again. A completion that had ended is returned as it was; to ask the
    same once more, use another `session_id`. Calls at greater depth are saved in the same way.

    `usage_summary`, `max_budget` and `max_tokens` count the calls of the children and of earlier processes, too.

    Only `environment="local"`: its cells run in this process, which is no sandbox.

        rlm = RLM(backend="openai", backend_kwargs={"model_name": "…"}, checkpoints="runs", session_id="report")
        rlm.completion(text, root_prompt="Which year?").response
    """

    max_iterations: int
    max_timeout: float | None

    def __init__(
        self,
        *,
        checkpoints: str | Path,
        session_id: str,
        trust: str | bytes | None = None,
        allow: Iterable[type] = (),
        every: int = 1,
        keep: int | None = 3,
        idempotent_tools: Collection[str] = (),
        **options: Any,
    ) -> None:
        """Configure the runtime.

        Args:
            checkpoints: The folder with the checkpoints; created if there is none.
            session_id: What the sessions' names begin with.
            trust: The key that signs checkpoints; without it, functions that cells define do not come back.
            allow: Classes whose instances may come back without a key.
            every: Iterations between two checkpoints. Those since the last one are run again after a crash, with the
                replies that the journal has.
            keep: Checkpoints of each session that are kept; None keeps all.
            idempotent_tools: The custom tools that may be called once more when it is not known whether a call that was
                pending has happened. The others then raise an error in the cell, for the model to decide.
            **options: Those of `rlm.RLM`.

        Raises:
            InvalidInputError: The environment is not "local", or it is to be persistent.
        """
        if options.get("environment", "local") != "local" or options.get("persistent", False):
            raise InvalidInputError(
                'Expected environment="local" without persistent=True: the variables of others are out of reach.'
            )
        self._root = Path(checkpoints).absolute()  # cells run in a folder of their own
        self._session_id = session_id
        self._saving: dict[str, Any] = {"trust": trust, "allow": tuple(allow), "every": every, "keep": keep}
        self._idempotent = frozenset(idempotent_tools)
        self._parent_session: RLMSession | None = None
        self._run: _Run | None = None
        for name in ("custom_tools", "custom_sub_tools"):
            if options.get(name) is not None:
                options[name] = {tool: self._journalled(tool, entry) for tool, entry in options[name].items()}
        super().__init__(**options)

    def completion(self, prompt: str | dict[str, Any], root_prompt: str | None = None) -> Any:
        """Return what `rlm.RLM.completion` returns, going on with what an earlier process has begun.

        Raises:
            CheckpointError: The session could not be restored, or not be saved.
        """
        if self.depth >= self.max_depth:
            return super().completion(prompt, root_prompt)
        run = self._opened(prompt, root_prompt)
        ended = run.session.working_memory.get("completion")
        if ended is not None:
            return RLMChatCompletion.from_dict(ended)
        limits = self.max_iterations, self.max_timeout
        self._run = run
        try:
            self.max_iterations = max(0, self.max_iterations - run.done_before)
            if self.max_timeout is not None:
                self.max_timeout = max(0.0, self.max_timeout - run.seconds_before)
            completion = super().completion(prompt, root_prompt)
        finally:
            self._run = None
            self.max_iterations, self.max_timeout = limits
        run.end(completion)
        return completion

    # What the runtime calls

    @contextmanager
    def _spawn_completion_context(self, prompt: str | dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        run = self._current()
        with (
            ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rlm-memory") as pool,
            super()._spawn_completion_context(prompt) as (handler, environment),
        ):
            run.attach(handler, environment, pool)
            yield handler, environment
            run.take_variables()  # before the environment is cleaned up

    def _setup_prompt(self, prompt: str | dict[str, Any], root_prompt: str | None = None) -> list[dict[str, Any]]:
        run = self._current()
        run.root_prompt, run.max_iterations = root_prompt, self.max_iterations + run.done_before
        if not run.resumed:
            messages: list[dict[str, Any]] = super()._setup_prompt(prompt, root_prompt)
            return messages
        self._best_partial_answer = run.session.working_memory.get("best_partial_answer")
        self._consecutive_errors = run.session.working_memory.get("consecutive_errors", 0)
        return run.messages()

    def _completion_turn(self, prompt: Any, lm_handler: Any, environment: Any) -> Any:
        run = self._current()
        run.begin_turn(prompt, self._best_partial_answer, self._consecutive_errors)
        iteration = super()._completion_turn(prompt=prompt, lm_handler=lm_handler, environment=environment)
        run.record(iteration)
        return iteration

    def _subcall(self, prompt: str, model: str | None = None) -> Any:
        run = self._current()
        name = run.name_of_child(prompt, model)

        def child(**options: Any) -> RLM:
            made = RLM(
                checkpoints=self._root,
                session_id=name,
                idempotent_tools=self._idempotent,
                **self._saving,
                **options,
            )
            made._parent_session = run.session
            return made

        def client(*arguments: Any) -> JournalledLM:
            return JournalledLM(runtime.get_client(*arguments), run.session)

        # It makes the child by the name `RLM`, and asks a model by the name `get_client`: here these are ours.
        subcall = FunctionType(
            runtime.RLM._subcall.__code__, {**vars(runtime), "RLM": child, "get_client": client}, "_subcall", (None,)
        )
        asked = {"model": model, **_described(prompt)}
        answer = run.session.call("rlm_query", asked, lambda: subcall(self, prompt, model).to_dict())
        return RLMChatCompletion.from_dict(answer)

    # Ours

    def _current(self) -> _Run:
        assert self._run is not None  # all of the above is called by `completion`
        return self._run

    def _opened(self, prompt: Any, root_prompt: str | None) -> _Run:
        tools = {name: extract_tool_value(entry) for name, entry in (self.custom_tools or {}).items()}
        scaffold = _Scaffold({name: tool for name, tool in tools.items() if isinstance(tool, Tool)})
        store = CheckpointStore(
            self._root, trust=self._saving["trust"], allow=self._saving["allow"], provided=scaffold.provided
        )
        if self._parent_session is not None:
            return _Run(self._parent_session.child(self._session_id, store=store, restore=True), scaffold)
        session_id = f"{self._session_id}/{_digest([prompt, root_prompt])[:16]}"
        options = {"every": self._saving["every"], "keep": self._saving["keep"]}
        try:
            session = RLMSession.restore(session_id, store=store, **options)
        except CheckpointNotFoundError:
            session = RLMSession(session_id, store=store, **options)
        return _Run(session, scaffold)

    def _journalled(self, name: str, entry: Any) -> Any:
        function = extract_tool_value(entry)
        if not callable(function):
            return entry
        own = Tool(name, function.function if isinstance(function, Tool) else function, self)
        return {**entry, "tool": own} if isinstance(entry, dict) else own


class Tool:
    """A custom tool whose finished calls are not made again."""

    def __init__(self, name: str, function: Callable[..., Any], owner: RLM) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self._owner = owner

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Return what the function returns, or returned in a process that has died."""
        run = self._owner._run
        if run is None:
            return self.function(*arguments, **named)
        return run.session.call(
            f"tool {self.name}",
            [arguments, named],
            lambda: self.function(*arguments, **named),
            idempotent=self.name in self._owner._idempotent,
        )


class JournalledLM(BaseLM):  # type: ignore[misc]  # rlms has no types
    """A client whose replies are journalled in a session, and counted there."""

    def __init__(self, client: Any, session: RLMSession, pool: ThreadPoolExecutor | None = None) -> None:
        super().__init__(model_name=client.model_name, timeout=client.timeout, sampling_args=client.sampling_args)
        self._client = client
        self._session = session
        self._pool = pool
        self._last = ModelUsageSummary(0, 0, 0)

    def completion(self, prompt: Any, model: str | None = None) -> str:
        """Return the reply to a prompt, the one that the journal has if it was given before the process died."""
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


class _Scaffold:
    """What the runtime puts into the namespace itself: it is stored by name, and is that of the new process again."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.environment: Any = None
        self.answer = _AnswerDict(on_ready=self._answered)
        self.functions = {name: self._function(method) for name, method in _SCAFFOLD.items()}
        self.provided = {
            **tools,
            **self.functions,
            "answer": self.answer,
        }

    def _answered(self, content: Any) -> None:
        self.environment._capture_answer(content)

    def _function(self, method: str) -> Callable[..., Any]:
        def function(*arguments: Any, **named: Any) -> Any:
            return getattr(type(self.environment), method)(self.environment, *arguments, **named)

        function.__name__ = function.__qualname__ = method.lstrip("_")
        return function

    def attach(self, environment: Any) -> None:
        self.environment = environment
        for name, method in _SCAFFOLD.items():
            # on the instance, too: it puts its own methods back after each cell, which are new objects each time
            setattr(environment, method, self.functions[name])
            environment.globals[name] = self.functions[name]
        environment.locals["answer"] = self.answer


class _Run:
    """One completion: its session, and how far it is."""

    def __init__(self, session: RLMSession, scaffold: _Scaffold) -> None:
        self.session = session
        self.resumed = bool(session.messages)
        self.done_before = session.turn
        self.seconds_before: float = session.working_memory.get("seconds", 0.0)
        self.root_prompt: str | None = None
        self.max_iterations = 0
        self._scaffold = scaffold
        self._restored = dict(session.namespace)
        self._began = time.monotonic()
        self._begun = False
        self._children: Counter[str] = Counter()
        self._lock = threading.Lock()

    def attach(self, handler: Any, environment: Any, pool: ThreadPoolExecutor) -> None:
        """Put the journal between the runtime and its models, and the saved variables into its REPL."""
        wrapped: dict[int, JournalledLM] = {}

        def journalled(client: Any) -> JournalledLM:
            return wrapped.setdefault(id(client), JournalledLM(client, self.session, pool))

        handler.clients = {name: journalled(client) for name, client in handler.clients.items()}
        handler.default_client = journalled(handler.default_client)
        if handler.other_backend_client is not None:
            handler.other_backend_client = journalled(handler.other_backend_client)
        self._scaffold.attach(environment)
        environment.locals.update(self._restored)
        dict.update(self._scaffold.answer, self.session.working_memory.get("answer", {}))
        if environment.compaction and isinstance(self._restored.get("history"), list):
            environment._compaction_history = self._restored["history"]

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages that were saved, and what the model must know of variables that did not come back."""
        messages = list(self.session.messages)
        if any(isinstance(value, Unrestored) for value in self._restored.values()):
            messages.append({"role": "user", "content": self.session.resume_note()})
        return messages

    def begin_turn(self, messages: list[dict[str, Any]], best_partial_answer: str | None, errors: int) -> None:
        """Save what the turn before has left; the last message is the runtime's, for the turn that begins."""
        if self._begun or not self.resumed:
            self.take_variables()
            self.session.messages = messages[:-1]
            self.session.working_memory.update(best_partial_answer=best_partial_answer, consecutive_errors=errors)
        if self._begun:
            self._children.clear()
            self.session.end_turn()
        elif not self.resumed:
            self.session.checkpoint(reason="start")
        self._begun = True
        if self.done_before:  # the runtime counts from one again
            environment = self._scaffold.environment
            messages[-1] = build_user_prompt(
                self.root_prompt,
                self.session.turn,
                environment.get_context_count(),
                environment.get_history_count(),
                max_iterations=self.max_iterations,
            )

    def record(self, iteration: Any) -> None:
        """Keep the text of the cells that ran."""
        for block in iteration.code_blocks:
            self.session.record_cell(block.code)
        errors = [block.result.stderr.strip() for block in iteration.code_blocks if block.result.stderr]
        cells = [block.code for block in iteration.code_blocks]
        self.session.record({"type": "iteration", "cells": cells, "errors": errors})

    def end(self, completion: Any) -> None:
        """Save the answer; the trajectory in its metadata is the logger's."""
        self.session.working_memory["completion"] = {**completion.to_dict(), "metadata": None}
        self.session.turn += 1
        self.session.checkpoint(reason="end")

    def name_of_child(self, prompt: str, model: str | None) -> str:
        """Return a name that the same call has in another process."""
        content = _digest([prompt, model])[:16]
        with self._lock:
            self._children[content] += 1
            return f"{self.session.turn}.{content}.{self._children[content]}"

    def take_variables(self) -> None:
        """Take the variables as they are now into the session."""
        variables = self._scaffold.environment.locals
        self.session.namespace.clear()
        self.session.namespace.update(
            (name, value) for name, value in variables.items() if name != "answer" and not _is_closed_file(value)
        )
        self.session.working_memory.update(
            answer=dict(variables["answer"]), seconds=self.seconds_before + time.monotonic() - self._began
        )


def _is_closed_file(value: Any) -> bool:
    """Tell whether it is what is left of reading a file: the runtime leaves one, called `f`, of the context's."""
    return isinstance(value, io.IOBase) and value.closed


def _described(prompt: Any) -> dict[str, Any]:
    """Return what the journal has of a prompt: enough to know it again, and for a person to know which it was."""
    last = prompt[-1].get("content") if isinstance(prompt, list) and prompt else prompt
    return {"sha256": _digest(prompt), "begins": str(last)[:_PREVIEW]}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()
