"""A Python REPL for agents, whose variables outlive the process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from llama_index.core.tools.tool_spec.base import SPEC_FUNCTION_TYPE, BaseToolSpec
from llama_index_instrumentation.dispatcher import active_instrument_tags

from rlm_memory.checkpoints import CheckpointStore
from rlm_memory.errors import InvalidInputError
from rlm_memory.repl import CellResult, Repl, Repls


class RLMCodeInterpreter(BaseToolSpec):
    r"""rRuns Python for an agent, in a namespace for each session that is saved as it goes.

    This is no sandbox: the code can do what the program can, such as read files and keys, or use the network. Run
    models that you do not trust in a container of their own. `time_limit` stops code; it does not confine it.

    Setup:
        Install `rlm-memory[llamaindex]`.

    Instantiate:
        >>> import tempfile
        >>> from llamaindex_rlm import RLMCodeInterpreter
        >>> folder = tempfile.TemporaryDirectory()
        >>> interpreter = RLMCodeInterpreter(path=folder.name, session_id="demo")

    Run code:
        >>> interpreter.python("x = [1, 2]\nsum(x)")
        '3'
        >>> interpreter.close()

        Later, or in another process:

        >>> interpreter = RLMCodeInterpreter(path=folder.name, session_id="demo")
        >>> print(interpreter.python("x"))
        The session was restored at turn 1.
        Variables that are back: x.
        [1, 2]

    Use in an agent:
        `FunctionAgent(tools=interpreter.to_tool_list(), llm=llm)`, or
        `CodeActAgent(interpreter.code_execute_fn, llm=llm)`.

        >>> [tool.metadata.name for tool in interpreter.to_tool_list()]
        ['python']

    Async:
        >>> import asyncio
        >>> asyncio.run(interpreter.apython("x[0]"))
        '1'
        >>> interpreter.close()
        >>> folder.cleanup()

    `to_tool_list()` gives the tool for a `FunctionAgent` or a `ReActAgent`; `code_execute_fn` is for a `CodeActAgent`.
    The session is the `session_id` of `instrument_tags`, else the one given here, else one of this object's own. One
    that was saved goes on where it was, in any process; the first result then says which variables are back, and which
    are not.
    """

    spec_functions: ClassVar[list[SPEC_FUNCTION_TYPE]] = [("python", "apython")]  # type: ignore[misc]  # theirs is no ClassVar

    def __init__(
        self,
        *,
        path: str | PathLike[str] | None = None,
        store: CheckpointStore | None = None,
        repl: Repl | None = None,
        session_id: str | None = None,
        trust: str | bytes | None = None,
        every: int = 5,
        keep: int | None = 3,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        max_output: int = 20_000,
        time_limit: float | None = None,
        turn_per_cell: bool = True,
    ) -> None:
        """Run code in the sessions of a folder of checkpoints, or in one REPL.

        Args:
            path: The folder with the checkpoints; created if there is none.
            store: The same as an opened store, in place of `path` and `trust`.
            repl: One REPL for all runs, whose session and options are the caller's.
            session_id: The session of every run that does not name one itself.
            trust: The key that signs checkpoints; without it, functions and classes do not come back.
            every: Cells between two checkpoints; one that fails is saved at once.
            keep: Checkpoints of each session that are kept; None keeps all.
            functions: Functions of the program that the code may call by name.
            max_output: The most characters of what is printed, and of the value, that the model is shown.
            time_limit: Seconds that a call may run, in a process of its own; None runs it here, without end.
            turn_per_cell: Count each call as a turn of the session. Set it to False where an event handler counts.

        Raises:
            InvalidInputError: Not exactly one of `path`, `store` and `repl` is given, or an option makes no sense.
        """
        if sum(place is not None for place in (path, store, repl)) != 1:
            raise InvalidInputError("Expected one of path=, store= and repl=: where the variables are kept.")
        self._repl = repl
        self._repls: Repls | None = None
        if repl is None:
            self._repls = Repls(
                store if store is not None else CheckpointStore(Path(str(path)), trust=trust),
                every=every,
                keep=keep,
                functions=functions,
                max_output=max_output,
                time_limit=time_limit,
                turn_per_cell=turn_per_cell,
            )
        self._session_id = session_id or str(uuid.uuid4())

    def python(self, code: str) -> str:
        """Run Python code in a session and return what it prints, the value of its last expression, and its error.

        Variables, functions, classes and imports stay for the next call.
        """
        return self.run(code).text

    async def apython(self, code: str) -> str:
        """Run Python code as `python` does, in a thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.python, code)

    @property
    def code_execute_fn(self) -> Callable[[str], Awaitable[str]]:
        """The function that a `CodeActAgent` takes."""
        return self.apython

    def run(self, code: str) -> CellResult:
        """Run Python code and return what came of it, in parts."""
        if self._repls is None:
            assert self._repl is not None
            return self._repl.run(code)
        named = active_instrument_tags.get().get("session_id")
        return self._repls.run(self._session_id if named in (None, "") else str(named), code)

    def close(self) -> None:
        """Save the sessions and end what runs them; a REPL that was given stays open."""
        if self._repls is not None:
            self._repls.close()

    def __enter__(self) -> RLMCodeInterpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
