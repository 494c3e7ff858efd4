"""The REPL as a tool of LangChain: its own suites, and whose variables a run sees."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from langchain_rlm import RLMPythonREPLTool
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.errors import InvalidInputError
from rlm_memory.repl import CellResult, Repl


class _Suite:
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "checkpoints"

    @pytest.fixture
    def tool(self) -> Iterator[BaseTool]:
        with RLMPythonREPLTool(**self.tool_constructor_params) as tool:
            yield tool

    @property
    def tool_constructor(self) -> type[BaseTool]:
        return RLMPythonREPLTool

    @property
    def tool_constructor_params(self) -> dict[str, Any]:
        return {"path": self.path}

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"code": "x = 6\nx * 7"}


class TestToolUnit(_Suite, ToolsUnitTests):
    pass


class TestToolIntegration(_Suite, ToolsIntegrationTests):
    pass


def config(**named: str) -> Any:
    return {"configurable": named}


async def test_threads_have_variables_of_their_own_which_async_runs_see_too(tmp_path: Path) -> None:
    with RLMPythonREPLTool(path=tmp_path) as tool:
        tool.invoke({"code": "name = 'Ada'"}, config(thread_id="1"))
        assert "NameError" in await tool.ainvoke({"code": "name"}, config(thread_id="2"))
        assert await tool.ainvoke({"code": "name"}, config(thread_id="1")) == "'Ada'"
        assert tool.invoke({"code": "name"}, {"metadata": {"thread_id": "1"}}) == "'Ada'"
        assert "NameError" in tool.invoke({"code": "name"})
        assert "NameError" in tool.invoke({"code": "name"}, config(thread_id="1", session_id="another"))


def test_a_given_session_is_that_of_every_thread(tmp_path: Path) -> None:
    with RLMPythonREPLTool(path=tmp_path, session_id="s") as tool:
        tool.invoke({"code": "x = 1"}, config(thread_id="1"))
        assert tool.invoke({"code": "x"}, config(thread_id="2")) == "1"
        assert "NameError" in tool.invoke({"code": "x"}, config(session_id="t"))


def test_another_process_goes_on_and_tells_the_model_what_is_back(tmp_path: Path) -> None:
    with RLMPythonREPLTool(path=tmp_path, trust="key") as tool:
        tool.invoke({"code": "def f(n): return n + 1\ng = (n for n in [1])"}, config(thread_id="1"))
    with RLMPythonREPLTool(path=tmp_path, trust="key") as tool:
        told = tool.invoke({"code": "f(1)"}, config(thread_id="1"))
    assert "Variables that are back: f." in told
    assert "NOT restored: g (generator)" in told
    assert told.endswith("\n2")


def test_the_artifact_is_the_result_in_parts(tmp_path: Path) -> None:
    with RLMPythonREPLTool(path=tmp_path) as tool:
        call = {"name": tool.name, "args": {"code": "print('p')\n1 / 0"}, "id": "1", "type": "tool_call"}
        message = tool.invoke(call)
    assert isinstance(message.artifact, CellResult)
    assert message.artifact.stdout == "p\n"
    assert message.content == "p\nZeroDivisionError: division by zero\n  line 2: 1 / 0"


async def test_a_cell_does_not_block_the_event_loop(tmp_path: Path) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    with RLMPythonREPLTool(path=tmp_path, functions={"tick": lambda: loop.call_soon_threadsafe(done.set)}) as tool:
        run = asyncio.create_task(tool.ainvoke({"code": "tick()\nimport time\ntime.sleep(0.2)"}))
        await asyncio.wait_for(done.wait(), 5)
        assert not run.done()
        await run


def test_a_repl_of_the_caller_is_used_as_it_is(tmp_path: Path) -> None:
    session = RLMSession("s", store=CheckpointStore(tmp_path), namespace={"context": "text"})
    with RLMPythonREPLTool(repl=Repl(session), name="run", description="Runs.") as tool:
        assert (tool.name, tool.description, tool.invoke({"code": "len(context)"})) == ("run", "Runs.", "4")
    assert session.turn == 1


def test_where_the_variables_are_kept_must_be_said_once(tmp_path: Path) -> None:
    for places in ({}, {"path": tmp_path, "store": CheckpointStore(tmp_path)}):
        with pytest.raises(InvalidInputError, match="path="):
            RLMPythonREPLTool(**places)


async def test_a_call_without_a_config_is_of_the_session_of_the_tool(tmp_path: Path):
    with RLMPythonREPLTool(path=tmp_path) as tool:
        tool.run({"code": "x = 1"})
        assert await tool.arun({"code": "x"}) == "1"
