"""One completion: its session, its REPL, and how far it is."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from rlm_memory.checkpoints import RLMSession, Unrestored
from rlm_memory.integrations.rlms.calls import digest
from rlm_memory.integrations.rlms.interface import CodeBlock, REPLResult, RLMIteration
from rlm_memory.integrations.rlms.repl import SavedREPL, Scaffold


class Run:
    """Saves a completion at its turns; brings one back that another process has begun.

    What has been done is handed to the runtime once more, turn by turn, without a model or a cell: so it counts, logs
    and limits as if it had never stopped. Messages and variables are put back when the first turn begins that is new.
    """

    def __init__(self, session: RLMSession, scaffold: Scaffold) -> None:
        self.session = session
        self._scaffold = scaffold
        self._saved = session.working_memory
        self._is_new = not self._saved
        self._begun = False
        self._done = deque(self._saved.setdefault("iterations", []))
        self.seconds_before: float = self._saved.setdefault("seconds", 0.0)
        self._began = time.monotonic()
        self._children: Counter[str] = Counter()
        self._lock = threading.Lock()

    def repl(self, options: Mapping[str, Any]) -> SavedREPL:
        """Return the REPL of the completion, new."""
        if options.get("setup_code"):
            self.session.record_cell(options["setup_code"])
        return SavedREPL(self._scaffold, is_child=self.session.depth > 0, **options)

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
            self._scaffold.repl.put_back(self.session.namespace, self._saved["answer"])
            self.take_variables()
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
        self.session.namespace.clear()
        self.session.namespace.update(self._scaffold.repl.taken())
        self._saved["answer"] = dict(self._scaffold.answer)
        self._saved["seconds"] = self.seconds_before + time.monotonic() - self._began

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
