"""The REPL for LlamaIndex's agents: as a tool, for a CodeActAgent, and whose variables a run sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import CodeActAgent
from llama_index.core.instrumentation.dispatcher import instrument_tags
from llama_index.core.llms import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata
from llama_index.core.llms.function_calling import FunctionCallingLLM
from pydantic import Field

from llamaindex_rlm import RLMCodeInterpreter
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.errors import InvalidInputError
from rlm_memory.repl import Repl


class ScriptedLLM(FunctionCallingLLM):
    """Says its lines one after the other, and keeps what it was told."""

    lines: list[str]
    told: list[list[ChatMessage]] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True)

    async def achat(self, messages: Any, **_: Any) -> ChatResponse:
        self.told.append(list(messages))
        return ChatResponse(message=ChatMessage(role="assistant", content=self.lines.pop(0)))

    def get_tool_calls_from_response(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def _prepare_chat_with_tools(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {}

    def complete(self, *_: Any, **__: Any) -> CompletionResponse:
        raise NotImplementedError

    stream_complete = stream_chat = chat = complete  # type: ignore[assignment]  # never called

    async def acomplete(self, *_: Any, **__: Any) -> CompletionResponse:
        raise NotImplementedError

    astream_complete = astream_chat = acomplete  # type: ignore[assignment]  # never called


async def test_tool_runs_code_in_one_namespace(tmp_path: Path) -> None:
    with RLMCodeInterpreter(path=tmp_path) as interpreter:
        [tool] = interpreter.to_tool_list()
        assert tool.metadata.name == "python"
        assert "Variables, functions" in tool.metadata.description
        assert tool.metadata.get_parameters_dict()["required"] == ["code"]
        assert tool.call(code="x = [1, 2]\nprint(x)").content == "[1, 2]"
        output = await tool.acall(code="x + [3]\n")
        assert (output.content, output.raw_output) == ("[1, 2, 3]", "[1, 2, 3]")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # LlamaIndex looks at every attribute of its agents
async def test_code_act_agent_goes_on_with_its_variables_in_another_process(tmp_path: Path) -> None:
    async def ask(*lines: str) -> tuple[str, str]:
        llm = ScriptedLLM(lines=[*lines, "It is done."])
        with RLMCodeInterpreter(path=tmp_path, session_id="s", trust="key") as interpreter:
            agent = CodeActAgent(code_execute_fn=interpreter.code_execute_fn, llm=llm, streaming=False)
            response = await agent.run("Count.")
        return str(response), str(llm.told[-1][-1].content)

    answer, result = await ask("<execute>def f(n): return n * 2\ntotal = f(21)\nprint(total)</execute>")
    assert (answer, result) == ("It is done.", "Result of executing the code given:\n\n42")
    _, result = await ask("<execute>f(total)</execute>")
    assert "Variables that are back: f, total." in result
    assert result.endswith("\n84")


async def test_sessions_of_the_tags_have_variables_of_their_own(tmp_path: Path) -> None:
    with RLMCodeInterpreter(path=tmp_path, session_id="given") as interpreter:
        [tool] = interpreter.to_tool_list()
        with instrument_tags({"session_id": "a"}):
            tool.call(code="name = 'Ada'")
        with instrument_tags({"session_id": "b"}):
            assert "NameError" in (await tool.acall(code="name")).content
        with instrument_tags({"session_id": "a"}):
            assert (await tool.acall(code="name")).content == "'Ada'"
        assert "NameError" in interpreter.python("name")
        assert interpreter.run("name = 1").error is None
    assert CheckpointStore(tmp_path).sessions() == ["a", "b", "given"]


def test_a_repl_of_the_caller_is_used_as_it_is(tmp_path: Path) -> None:
    session = RLMSession("s", store=CheckpointStore(tmp_path), namespace={"context": "text"})
    with RLMCodeInterpreter(repl=Repl(session)) as interpreter:
        assert interpreter.python("len(context)") == "4"
    assert session.turn == 1


def test_where_the_variables_are_kept_must_be_said_once(tmp_path: Path) -> None:
    for places in ({}, {"path": tmp_path, "store": CheckpointStore(tmp_path)}):
        with pytest.raises(InvalidInputError, match="path="):
            RLMCodeInterpreter(**places)
