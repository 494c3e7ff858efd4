"""A Python REPL as a tool, whose variables outlive the process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from rlm_memory.checkpoints import CheckpointStore
from rlm_memory.errors import InvalidInputError
from rlm_memory.repl import CellResult, Repl, Repls

DESCRIPTION = (
    "Runs Python code in a session and returns what it prints, the value of its last expression, and its error. "
    "Variables, functions, classes and imports stay for the next call."
)


class PythonCode(BaseModel):
    """What the tool takes."""

    code: str = Field(description="Python code. Print what you want to see, or end with an expression.")


class RLMPythonREPLTool(BaseTool):
    r"""rRuns Python for an agent, in a namespace for each session that is saved as it goes.

    This is no sandbox: the code can do what the program can, such as read files and keys, or use the network. Run
    models that you do not trust in a container of their own. `time_limit` stops code; it does not confine it.

    Setup:
        Install `rlm-memory[langchain]`.

    Instantiate:
        >>> import tempfile
        >>> from langchain_rlm import RLMPythonREPLTool
        >>> folder = tempfile.TemporaryDirectory()
        >>> tool = RLMPythonREPLTool(path=folder.name, session_id="demo")

    Invoke:
        >>> tool.invoke({"code": "x = [1, 2]\nsum(x)"})
        '3'
        >>> tool.close()

        Later, or in another process:

        >>> tool = RLMPythonREPLTool(path=folder.name, session_id="demo")
        >>> print(tool.invoke({"code": "x"}))
        The session was restored at turn 1.
        Variables that are back: x.
        [1, 2]

    Async:
        >>> import asyncio
        >>> asyncio.run(tool.ainvoke({"code": "x[0]"}))
        '1'
        >>> tool.close()
        >>> folder.cleanup()

    Use in an agent:
        `create_agent(model, tools=[tool])`.

    The session is the `session_id` of the run's `config["configurable"]` or metadata, else the one given here, else its
    `thread_id`, else one of this object's own. One that was saved goes on where it was, in any process; the first
    result then says which variables are back, and which are not. The result is the message for the model, with the
    `CellResult` as its artifact.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str = "python"
    description: str = DESCRIPTION
    args_schema: Any = PythonCode
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    repl: Repl | None = None
    """The REPL of all runs, or None where each session has its own."""
    _repls: Repls | None = PrivateAttr(None)
    _session_id: str = PrivateAttr("")
    _given: bool = PrivateAttr(False)

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
        **kwargs: Any,
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
            turn_per_cell: Count each call as a turn of the session. Set it to False where a callback handler counts.
            **kwargs: What every tool takes: `name`, `description`, `return_direct`, …

        Raises:
            InvalidInputError: Not exactly one of `path`, `store` and `repl` is given, or an option makes no sense.
        """
        if sum(place is not None for place in (path, store, repl)) != 1:
            raise InvalidInputError("Expected one of path=, store= and repl=: where the variables are kept.")
        super().__init__(repl=repl, **kwargs)
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
        self._given = session_id is not None
        self._session_id = session_id or str(uuid.uuid4())

    def close(self) -> None:
        """Save the sessions and end what runs them; a REPL that was given stays open."""
        if self._repls is not None:
            self._repls.close()

    def __enter__(self) -> RLMPythonREPLTool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # LangChain runs this in a thread of its own for `ainvoke`; code that runs here would block the loop otherwise.
    def _run(self, code: str, config: RunnableConfig) -> tuple[str, CellResult]:
        """Run the code and return what the model is told, and the whole result."""
        if self._repls is None:
            assert self.repl is not None
            result = self.repl.run(code)
        else:
            result = self._repls.run(self._session_of(config), code)
        return result.text, result

    def _session_of(self, config: RunnableConfig | None) -> str:
        config = config or {}  # `run` and `arun` hand on the None that they were given
        configurable, metadata = config.get("configurable") or {}, config.get("metadata") or {}
        own = self._session_id if self._given else None
        first = (configurable.get("session_id"), metadata.get("session_id"), own)
        then = (configurable.get("thread_id"), metadata.get("thread_id"), self._session_id)
        return next(str(id) for id in (*first, *then) if id not in (None, ""))
