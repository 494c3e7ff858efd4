"""One completion: its session, its REPL, and how far it is."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from rlm_memory.checkpoints import RLMSession, Unrestored
from rlm_memory.integrations.rlms.calls import JournalledLM, digest
from rlm_memory.integrations.rlms.interface import (
    SCAFFOLD,
    AnswerDict,
    CodeBlock,
    REPLResult,
    RLMIteration,
    extract_tool_value,
)


class Scaffold:
    """What the runtime itself puts into the namespace: it is stored by name, and is that of the new process again.

    It is there before the REPL is, because checkpoints that name it are read before.
    """

    def __init__(self, custom_tools: Mapping[str, Any] | None) -> None:
        self.environment: Any = None
        self.answer = AnswerDict(on_ready=self._answered)
        self.functions = {name: self._function(method) for name, method in SCAFFOLD.items()}
        tools = {name: extract_tool_value(entry) for name, entry in (custom_tools or {}).items()}
        self.provided: dict[str, Any] = {
            **{name: tool for name, tool in tools.items() if callable(tool)},
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
        """Put it into the namespace of a new REPL."""
        self.environment = environment
        for name, method in SCAFFOLD.items():
            # As attributes, too: after each cell the REPL puts its methods back, and those are new objects each time.
            setattr(environment, method, self.functions[name])
            environment.globals[name] = self.functions[name]
        environment.locals["answer"] = self.answer


class Run:
    """Saves a completion at its turns; brings one back that another process has begun.

    What has been done is handed to the runtime once more, turn by turn, without a model or a cell: so it counts, logs
    and limits as if it had never stopped. Messages and variables are put back when the first turn begins that is new.
    """

    def __init__(self, session: RLMSession, scaffold: Scaffold) -> None:
        self.session = session
        self._saved = session.working_memory
        self._scaffold = scaffold
        self._began = time.monotonic()
        self._is_new = not self._saved
        self._begun = False
        self._done = deque(self._saved.setdefault("iterations", []))
        self.seconds_before: float = self._saved.setdefault("seconds", 0.0)
        self._left_open: Any = None
        self._children: Counter[str] = Counter()
        self._lock = threading.Lock()

    def attach(self, handler: Any, environment: Any, pool: Executor) -> None:
        """Put the journal between the runtime and its models, and take hold of its REPL."""
        wrapped: dict[int, JournalledLM] = {}

        def journalled(client: Any) -> JournalledLM:
            return wrapped.setdefault(id(client), JournalledLM(client, self.session, pool))

        handler.clients = {name: journalled(client) for name, client in handler.clients.items()}
        handler.default_client = journalled(handler.default_client)
        if handler.other_backend_client is not None:
            handler.other_backend_client = journalled(handler.other_backend_client)
        self._scaffold.attach(environment)
        self._left_open = environment.locals.get("f")

    # Turns

    @property
    def catches_up(self) -> bool:
        """Whether the runtime is at what an earlier process has done."""
        return not (self._is_new or self._begun)

    def next_done(self, messages: list[dict[str, Any]]) -> Any:
        """Return the next iteration that an earlier process has done, or None when there is none left."""
        if not self._done:
            return None
        done = self._done.popleft()
        blocks = [
            CodeBlock(code=code, result=REPLResult(stdout=stdout, stderr=stderr, locals={}))
            for code, stdout, stderr in done["cells"]
        ]
        return RLMIteration(
            prompt=messages, response=done["response"], code_blocks=blocks, iteration_time=done["seconds"]
        )

    def begin_turn(self, messages: list[dict[str, Any]]) -> None:
        """Save what the turn before has left, or put back what was saved.

        The last of the messages is the runtime's, for the turn that begins.
        """
        self._children.clear()
        if self.catches_up:
            messages[:-1] = self.session.messages
            self._put_variables_back()
        else:
            self.take_variables()
            self.session.messages = messages[:-1]
            if self._begun:
                self.session.end_turn()
            else:
                self.session.checkpoint(reason="start")
        self._begun = True
        self._tell_of_losses(messages)

    def record(self, iteration: Any) -> None:
        """Keep what an iteration was, and the text of its cells."""
        cells = [(block.code, block.result.stdout, block.result.stderr) for block in iteration.code_blocks]
        for code, _, _ in cells:
            self.session.record_cell(code)
        self._saved["iterations"].append(
            {"response": iteration.response, "cells": cells, "seconds": iteration.iteration_time}
        )
        errors = [stderr.strip() for _, _, stderr in cells if stderr]
        self.session.record({"type": "iteration", "cells": len(cells), "errors": errors})

    def count_compaction(self) -> int:
        """Return how many compactions there were, with the one that begins."""
        self._saved["compactions"] = self._saved.get("compactions", 0) + 1
        return int(self._saved["compactions"])

    def end(self, completion: Any) -> None:
        """Save the answer; the trajectory in its metadata is the logger's."""
        self._saved["completion"] = {**completion.to_dict(), "metadata": None}
        self.session.turn += 1
        self.session.checkpoint(reason="end")

    @property
    def ended(self) -> Mapping[str, Any] | None:
        """The completion, as the dict that `RLMChatCompletion.from_dict` takes, or None while there is none."""
        return self._saved.get("completion")

    def name_of_child(self, prompt: str, model: str | None) -> str:
        """Return a name that the same call has in another process."""
        content = digest([prompt, model])[:16]
        with self._lock:
            self._children[content] += 1
            return f"{self.session.turn}.{content}.{self._children[content]}"

    # Variables

    def take_variables(self) -> None:
        """Take the variables as they are now into the session."""
        variables = self._scaffold.environment.locals
        self.session.namespace.clear()
        self.session.namespace.update(
            (name, value)
            for name, value in variables.items()
            if name != "answer" and not (name == "f" and value is self._left_open)  # the closed file of the context
        )
        self._saved["answer"] = dict(variables["answer"])
        self._saved["seconds"] = self.seconds_before + time.monotonic() - self._began

    def _put_variables_back(self) -> None:
        """Put the saved variables into the REPL; one that did not come back leaves what the runtime has put there."""
        environment = self._scaffold.environment
        environment.locals.update(
            (name, value)
            for name, value in self.session.namespace.items()
            if not (isinstance(value, Unrestored) and name in environment.locals)
        )
        dict.update(self._scaffold.answer, self._saved["answer"])
        if environment.compaction:
            environment._compaction_history = environment.locals["history"]
        self.take_variables()

    def _tell_of_losses(self, messages: list[dict[str, Any]]) -> None:
        """Tell the model once which variables did not come back, in the first turn whose reply is not paid already."""
        lost = sorted(name for name, value in self.session.namespace.items() if isinstance(value, Unrestored))
        if not set(lost) - set(self._saved.get("told", ())):
            return
        if any(operation.turn == self.session.turn for operation in self.session.resume().replayed):
            return
        messages.insert(-1, {"role": "user", "content": self.session.resume_note()})
        self.session.messages = messages[:-1]
        self._saved["told"] = lost
        self.session.checkpoint(reason="resume")
