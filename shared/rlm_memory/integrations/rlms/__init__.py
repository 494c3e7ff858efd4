"""An `RLM` of the package `rlms` whose completions survive their process.

What rlms offers to others, its logger, sees every iteration and can resume none. So this attaches where iterations are
made, to methods of `rlm.RLM` and `LocalREPL` that are private there. `interface` names them all, and holds the
installed version to them when this is imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rlm_memory.checkpoints import CheckpointNotFoundError, CheckpointStore, RLMSession
from rlm_memory.errors import InvalidInputError
from rlm_memory.integrations.rlms.calls import JournalledLM, Tool, digest
from rlm_memory.integrations.rlms.interface import (
    BaseRLM,
    RLMChatCompletion,
    extract_tool_value,
    get_client,
    with_globals,
)
from rlm_memory.integrations.rlms.repl import Scaffold
from rlm_memory.integrations.rlms.run import Run

__all__ = ["RLM"]

_AT_ONCE: Final = 16
"""Prompts of a batch that are asked at the same time: as many as rlms itself asks."""


class RLM(BaseRLM):  # type: ignore[misc]  # rlms has no types
    """An `rlm.RLM` that saves its completions and goes on with them in another process.

    `completion` begins a session of its own for each prompt. When the process dies, the same call in a new process goes
    on from the newest checkpoint: with the variables of the REPL, the messages and the cost. Replies of models that had
    arrived are in the journal and not paid again. Calls at greater depth are saved in the same way. A completion that
    had ended is returned as it was, without its metadata; to ask the same once more, use another `session_id`.

    `usage_summary`, `max_budget`, `max_tokens` and `max_timeout` count the children and the earlier processes, too.
    Files that cells write into their working folder are not saved: rlms removes it.

    Only `environment="local"`: its cells run in this process, which is no sandbox.

        rlm = RLM(backend="openai", backend_kwargs={"model_name": "…"}, checkpoints="runs", session_id="report")
        rlm.completion(text, root_prompt="Which year?").response
    """

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
            session_id: What the names of the sessions begin with.
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
        self._saving: dict[str, Any] = {
            "checkpoints": Path(checkpoints).absolute(),  # cells run in a folder of their own
            "trust": trust,
            "allow": tuple(allow),
            "every": every,
            "keep": keep,
            "idempotent_tools": frozenset(idempotent_tools),
        }
        self._session_id = session_id
        self._parent: RLMSession | None = None
        self._run: Run | None = None
        for name in ("custom_tools", "custom_sub_tools"):
            if options.get(name) is not None:
                options[name] = {tool: self._journalled(tool, entry) for tool, entry in options[name].items()}
        super().__init__(**options)

    def completion(self, prompt: str | dict[str, Any], root_prompt: str | None = None) -> Any:
        """Return what `rlm.RLM.completion` returns, going on with what an earlier process has begun.

        Raises:
            CheckpointError: The session could not be restored, or not be saved.
        """
        if self.depth >= self.max_depth:  # a plain call of a model
            return super().completion(prompt, root_prompt)
        self._run = run = self._opened(prompt, root_prompt)
        try:
            if run.ended is not None:
                return RLMChatCompletion.from_dict(run.ended)
            completion = super().completion(prompt, root_prompt)
        finally:
            self._run = None
        completion.execution_time += run.seconds_before
        run.end(completion)
        return completion

    # What the runtime calls

    @contextmanager
    def _spawn_completion_context(self, prompt: str | dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        run = self._current()
        self._completion_start_time -= run.seconds_before  # by which children are given the time that is left
        pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rlm-memory")
        spawn = with_globals(
            BaseRLM._spawn_completion_context,
            get_client=lambda *options: JournalledLM(get_client(*options), run.session, pool),
            get_environment=lambda _, options: run.repl(options),
        )
        try:
            with contextmanager(spawn)(self, prompt) as (handler, repl):
                yield handler, repl
                if not run.catches_up:  # it does at the end, when there are fewer iterations to be than there were
                    run.take_variables()  # before they are cleaned up
        finally:
            pool.shutdown(wait=False)  # who interrupts it does not wait; replies on their way are journalled

    def _completion_turn(self, prompt: Any, lm_handler: Any, environment: Any) -> Any:
        run = self._current()
        done = run.next_done(prompt)
        if done is not None:
            return done
        run.begin_turn(prompt)
        iteration = super()._completion_turn(prompt=prompt, lm_handler=lm_handler, environment=environment)
        run.record(iteration)
        return iteration

    def _compact_history(
        self, lm_handler: Any, environment: Any, message_history: list[dict[str, Any]], compaction_count: int = 1
    ) -> Any:
        run = self._current()
        if run.catches_up:
            return message_history  # those that were compacted are put back when a new turn begins
        return super()._compact_history(lm_handler, environment, message_history, run.count_compaction())

    def _check_timeout(self, iteration: int, time_start: float) -> None:
        super()._check_timeout(iteration, time_start - self._current().seconds_before)

    @property
    def _cumulative_cost(self) -> float:
        """What children may not spend any more; the runtime's own sum misses some of it."""
        return self._run.session.cost_so_far if self._run is not None else 0.0

    @_cumulative_cost.setter
    def _cumulative_cost(self, cost: float) -> None:
        """Let the runtime sum: the session counts every reply."""

    def _subcall(self, prompt: str, model: str | None = None) -> Any:
        run = self._current()
        name = run.name_of_child(prompt, model)

        def child(**options: Any) -> RLM:
            made = RLM(session_id=name, **self._saving, **options)
            made._parent = run.session
            return made

        subcall = with_globals(
            BaseRLM._subcall, RLM=child, get_client=lambda *options: JournalledLM(get_client(*options), run.session)
        )
        return subcall(self, prompt, model)

    # Ours

    def _current(self) -> Run:
        assert self._run is not None  # all of the above is called by `completion`
        return self._run

    def _opened(self, prompt: Any, root_prompt: str | None) -> Run:
        scaffold = Scaffold(self.custom_tools)
        store = CheckpointStore(
            self._saving["checkpoints"],
            trust=self._saving["trust"],
            allow=self._saving["allow"],
            provided=scaffold.provided,
        )
        if self._parent is not None:
            session = self._parent.child(self._session_id, store=store, restore=True)
            if self.max_budget is not None:
                self.max_budget += session.cost_so_far  # the parent has counted it already
            return Run(session, scaffold)
        session_id = f"{self._session_id}/{digest([prompt, root_prompt])[:16]}"
        options = {"every": self._saving["every"], "keep": self._saving["keep"]}
        try:
            session = RLMSession.restore(session_id, store=store, **options)
        except CheckpointNotFoundError:
            session = RLMSession(session_id, store=store, **options)
        return Run(session, scaffold)

    def _journalled(self, name: str, entry: Any) -> Any:
        function = extract_tool_value(entry)
        if not callable(function) or isinstance(function, type):
            return entry
        own = Tool(
            name,
            function.function if isinstance(function, Tool) else function,  # a child has its parent's
            idempotent=name in self._saving["idempotent_tools"],
            session=lambda: self._run.session if self._run is not None else None,
        )
        return {**entry, "tool": own} if isinstance(entry, dict) else own
