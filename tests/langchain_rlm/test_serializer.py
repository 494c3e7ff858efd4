"""RLMSerializer in LangGraph: what comes back, from any checkpointer, and what cannot be smuggled in."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import given, settings
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, Send, interrupt
from pydantic import BaseModel

from checkpoints.graphs import graphs
from checkpoints.same import difference
from langchain_rlm import RLMSaver, RLMSerializer
from rlm_memory.checkpoints import CheckpointDamagedError, CheckpointLimitError, Limits, UnsavableValueError


@dataclass
class Point:
    x: Any


class Model(BaseModel):
    items: tuple[int, ...]
    other: Any = None


class Colour(Enum):
    RED = 1


def back(value: Any, serializer: RLMSerializer | None = None) -> Any:
    serializer = serializer or RLMSerializer()
    return serializer.loads_typed(serializer.dumps_typed(value))


@settings(max_examples=60)
@given(graphs())
def test_any_graph_of_objects_comes_back_exactly(value: Any) -> None:
    assert difference(value, back(value)) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"bytes",
        bytearray(b"array"),
        (1, (2,)),
        {(1, 2): {3}, 4: frozenset({5})},
        HumanMessage("hi", id="1"),
        AIMessage("a", tool_calls=[{"name": "t", "args": {"k": [1]}, "id": "1", "type": "tool_call"}]),
        ToolMessage("r", tool_call_id="1", artifact=("a", {1})),
        [SystemMessage("s"), Document("d", metadata={"k": (1, 2)})],
        Send("node", {"k": (1,)}),
        Interrupt(value=("ask", {1}), id="i"),
        Command(resume={"a": (1,)}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_langgraph_keeps_comes_back_exactly(value: Any) -> None:
    found = back(value)
    assert type(found) is type(value)
    assert found == value


def test_classes_that_are_named_come_back_and_others_are_refused_when_they_are_written() -> None:
    allowing = RLMSerializer(allow=[Point, Model, Colour])
    for value in (Point((1, {2})), Model(items=(1, 2), other={3}), Colour.RED, [Point(Colour.RED)]):
        assert back(value, allowing) == value
        with pytest.raises(UnsavableValueError, match="allow="):
            RLMSerializer().dumps_typed(value)
    for value in (lambda: 1, (n for n in [1]), open):
        with pytest.raises(UnsavableValueError):
            allowing.dumps_typed(value)


def state_graph(checkpointer: Any) -> Any:
    pandas = pytest.importorskip("pandas", reason="the state holds a data frame")

    class State(TypedDict, total=False):
        frame: Any
        seen: Any
        answer: Any

    def make(state: State) -> State:
        return {"frame": pandas.DataFrame({"a": [1, 2], "b": [None, "x"]}, index=[(1, 2), (3, 4)]), "seen": {(1, 2)}}

    def ask(state: State) -> State:
        return {"answer": interrupt(("how many?", {1}))}

    graph = StateGraph(State).add_node("make", make).add_node("ask", ask)
    return graph.add_edge(START, "make").add_edge("make", "ask").add_edge("ask", END).compile(checkpointer=checkpointer)


@pytest.mark.parametrize("kind", ["RLMSaver", "SqliteSaver", "InMemorySaver"])
def test_every_checkpointer_holds_frames_tuples_and_sets_over_an_interrupt(kind: str, tmp_path: Path) -> None:
    config: Any = {"configurable": {"thread_id": "1"}}
    serializer = RLMSerializer()
    with ExitStack() as stack:
        saver: Any
        if kind == "RLMSaver":
            saver = stack.enter_context(RLMSaver(tmp_path / "m.db", serde=serializer))
        elif kind == "SqliteSaver":
            saver = stack.enter_context(SqliteSaver.from_conn_string(str(tmp_path / "s.db")))
            saver.serde = serializer
        else:
            saver = InMemorySaver(serde=serializer)
        [asked] = state_graph(saver).invoke({}, config)["__interrupt__"]
        assert asked.value == ("how many?", {1})
        final = state_graph(saver).invoke(Command(resume=(7, {8})), config)
    assert final["answer"] == (7, {8})
    assert final["seen"] == {(1, 2)}
    assert list(final["frame"].index) == [(1, 2), (3, 4)]
    assert final["frame"]["b"].isna().tolist() == [True, False]


async def test_langgraphs_conformance_suite_passes_with_it(caplog: Any) -> None:
    caplog.set_level(logging.ERROR)

    @checkpointer_test(name="InMemorySaver with RLMSerializer")
    async def saver() -> AsyncIterator[InMemorySaver]:
        yield InMemorySaver(serde=RLMSerializer())

    report = await validate(saver)
    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    assert report.passed_all_base()


def test_threads_that_langgraphs_serialiser_wrote_go_on() -> None:
    before = JsonPlusSerializer(allowed_msgpack_modules=[(Point.__module__, "Point")])
    for value in (None, b"b", {"a": [1, HumanMessage("hi", id="1")]}, Point(1)):
        assert RLMSerializer(allow=[Point]).loads_typed(before.dumps_typed(value)) == value


def test_it_can_be_encrypted() -> None:
    pytest.importorskip("Crypto", reason="LangGraph's encryption needs pycryptodome")
    serializer = EncryptedSerializer.from_pycryptodome_aes(RLMSerializer(), key=b"0" * 16)
    assert serializer.loads_typed(serializer.dumps_typed((1, {2}))) == (1, {2})


def test_it_is_what_langgraph_asks_for() -> None:
    assert isinstance(RLMSerializer(), SerializerProtocol)


# bytes that nobody should trust


class Bomb:
    def __reduce__(self) -> Any:
        return exec, ("import sys; sys.bombs.append(1)",)


def test_stored_bytes_run_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """B082"""
    monkeypatch.setattr(sys, "bombs", [], raising=False)
    serializer = RLMSerializer()
    for encoding in ("pickle", "rlmc", "json", "msgpack", "other"):
        try:
            serializer.loads_typed((encoding, pickle.dumps(Bomb())))
        except Exception:  # noqa: BLE001  # each has its own error; none may run it
            continue
    assert not sys.bombs  # type: ignore[attr-defined]  # set above
    with pytest.raises(NotImplementedError, match="pickle"):
        serializer.loads_typed(("pickle", pickle.dumps(1)))


def test_bytes_of_a_class_that_is_not_allowed_are_refused() -> None:
    data = RLMSerializer(allow=[Point]).dumps_typed(Point(1))
    with pytest.raises(UnsavableValueError, match="Point"):
        RLMSerializer().loads_typed(data)


def test_damaged_and_oversized_bytes_are_refused() -> None:
    encoding, data = RLMSerializer().dumps_typed(list(range(1000)))
    with pytest.raises(CheckpointDamagedError):
        RLMSerializer().loads_typed((encoding, data[:-1]))
    with pytest.raises(CheckpointLimitError):
        RLMSerializer(limits=Limits(file=100)).loads_typed((encoding, data))
