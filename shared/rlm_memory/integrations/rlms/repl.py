"""The REPL of a completion, and what the runtime itself puts into its namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rlm_memory.checkpoints import Unrestored
from rlm_memory.integrations.rlms.interface import SCAFFOLD, AnswerDict, LocalREPL, extract_tool_value


class Scaffold:
    """What the runtime puts into the namespace: it is stored by name, and is that of the new process again.

    It is there before the REPL is, because checkpoints that name it are read before.
    """

    def __init__(self, custom_tools: Mapping[str, Any] | None) -> None:
        self.repl: Any = None
        self.answer = AnswerDict(on_ready=self._answered)
        self.functions = {name: self._function(method) for name, method in SCAFFOLD.items()}
        tools = {name: extract_tool_value(entry) for name, entry in (custom_tools or {}).items()}
        self.provided: dict[str, Any] = {
            **{name: tool for name, tool in tools.items() if callable(tool)},
            **self.functions,
            "answer": self.answer,
        }

    def _answered(self, content: Any) -> None:
        self.repl._capture_answer(content)

    def _function(self, method: str) -> Callable[..., Any]:
        def function(*arguments: Any, **named: Any) -> Any:
            return getattr(self.repl, method)(*arguments, **named)

        function.__name__ = function.__qualname__ = method.lstrip("_")
        return function


class SavedREPL(LocalREPL):  # type: ignore[misc]  # rlms has no types
    """A `LocalREPL` whose variables can be taken and put back.

    The cells of a child run in the folder in which the cell of its parent does. A process has but one: children that
    run at the same time and change to folders of their own, as those of rlms do, fail when one of them is removed.
    """

    def __init__(self, scaffold: Scaffold, *, is_child: bool, **options: Any) -> None:
        self._scaffold = scaffold
        self._is_child = is_child
        scaffold.repl = self
        super().__init__(**options)
        self._left_open = self.locals.get("f")

    def taken(self) -> dict[str, Any]:
        """Return the variables, but for the answer, and the closed file through which the context came."""
        return {
            name: value
            for name, value in self.locals.items()
            if name != "answer" and not (name == "f" and value is self._left_open)
        }

    def put_back(self, variables: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Make the variables those that were taken; for one that did not come back, what a new REPL has stays."""
        self.locals.update(
            (name, value)
            for name, value in variables.items()
            if not (isinstance(value, Unrestored) and name in self.locals)
        )
        dict.update(self._scaffold.answer, answer)
        if self.compaction:
            self._compaction_history = self.locals["history"]

    # What the runtime calls

    def setup(self) -> None:
        """Make the namespace."""
        super().setup()
        self._put_scaffold()

    def _restore_scaffold(self) -> None:
        super()._restore_scaffold()
        self._put_scaffold()

    def _put_scaffold(self) -> None:
        self.globals.update(self._scaffold.functions)
        answer = self.locals["answer"]
        if answer is not self._scaffold.answer:  # a new one, or one that a cell has made
            self._scaffold.answer.clear()
            dict.update(self._scaffold.answer, answer)
            self.locals["answer"] = self._scaffold.answer

    def _temp_cwd(self) -> AbstractContextManager[None]:
        folder: AbstractContextManager[None] = nullcontext() if self._is_child else super()._temp_cwd()
        return folder
