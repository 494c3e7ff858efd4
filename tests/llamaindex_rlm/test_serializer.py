"""RLMSerializer in LlamaIndex's workflows: what comes back, and what cannot be smuggled in."""

from __future__ import annotations

import base64
import json
import pickle
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.llms import ChatMessage
from llama_index.core.schema import Document, NodeWithScore, TextNode
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    JsonSerializer,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from pydantic import BaseModel

from checkpoints.graphs import keys, values
from checkpoints.same import difference
from llamaindex_rlm import RLMSerializer

trees = st.recursive(
    values,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@dataclass
class Point:
    x: Any


class Model(BaseModel):
    items: tuple[int, ...]
    other: Any = None


class Level(IntEnum):
    LOW = 1


class Asked(HumanResponseEvent):
    answer: Any


def back(value: Any, serializer: RLMSerializer | None = None) -> Any:
    serializer = serializer or RLMSerializer()
    return serializer.deserialize(serializer.serialize(value))


@settings(max_examples=100)
@given(trees)
def test_any_value_comes_back_exactly(value: Any) -> None:
    assert difference([value], [back(value)]) is None


@pytest.mark.parametrize(
    "value",
    [
        (1, (2,)),
        {"set": {1}, "list": [(1,)], "bytes": b"b"},
        {1: 2, (1, 2): 3},
        {"__rlmc": "AAAA"},
        {"__is_pydantic": True, "qualified_name": "os.system", "value": {}},
        {"__is_component": True, "qualified_name": "os.system", "value": {}},
        float("inf"),
        2**5000,
        "\ud800\udc00",
        ChatMessage(role="user", content="hi", additional_kwargs={"k": (1,)}),
        NodeWithScore(node=TextNode(text="t", metadata={"k": (1, 2)}), score=0.5),
        Document(text="d"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_workflows_keep_comes_back_exactly(value: Any) -> None:
    found = back(value)
    assert type(found) is type(value)
    assert found == value


def test_what_json_holds_stays_json_that_a_person_can_read() -> None:
    value = {"name": "Ada", "items": [1, 2.5, None, True, {"deep": "x"}]}
    assert json.loads(RLMSerializer().serialize(value)) == value
    assert [*json.loads(RLMSerializer().serialize({"name": "Ada", "seen": {1}}))] == ["name", "seen"]


def test_classes_that_are_named_come_back_and_others_are_refused_when_they_are_written() -> None:
    allowing = RLMSerializer(allowed_types=[Point, Model, Level])
    for value in (Point((1, {2})), Model(items=(1, 2), other={3}), Level.LOW, {"deep": [Point(Level.LOW)]}):
        assert difference(value, back(value, allowing)) is None
    for value in (Point(1), {"deep": [Level.LOW]}):
        with pytest.raises(ValueError, match="allowed_types"):
            RLMSerializer().serialize(value)
    with pytest.raises(ValueError, match="generator"):
        allowing.serialize({"lines": (n for n in [1])})
    assert back(Point((1,)), RLMSerializer().with_types(Point)) == Point((1,))


class Asking(Workflow):
    """Keeps a frame, a set and a tuple, and waits for a human between making and using them."""

    @step
    async def make(self, ctx: Context, ev: StartEvent) -> InputRequiredEvent:
        import pandas

        await ctx.store.set("frame", pandas.DataFrame({"a": [1, 2]}, index=[(1, 2), (3, 4)]))
        await ctx.store.set("seen", {(1, 2)})
        return InputRequiredEvent(prefix="how many?")

    @step
    async def use(self, ctx: Context, ev: Asked) -> StopEvent:
        frame, seen = await ctx.store.get("frame"), await ctx.store.get("seen")
        return StopEvent(result=(list(frame.index), seen, ev.answer))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # LlamaIndex looks at every attribute of its workflows
async def test_a_context_holds_frames_tuples_and_sets_until_the_human_answers() -> None:
    pytest.importorskip("pandas", reason="the state holds a data frame")
    handler = Asking().run()
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            break
    saved = json.loads(json.dumps(handler.ctx.to_dict(serializer=RLMSerializer())))
    await handler.cancel_run()
    workflow = Asking()
    context = Context.from_dict(workflow, saved, serializer=RLMSerializer())
    handler = workflow.run(ctx=context)
    handler.ctx.send_event(Asked(answer=(7, {8})))
    assert await handler == ([(1, 2), (3, 4)], {(1, 2)}, (7, {8}))


def test_what_llamaindexs_serialiser_wrote_is_read() -> None:
    before = JsonSerializer()
    for value in ({"a": [1, "x"]}, Model(items=(1, 2))):
        assert RLMSerializer(allowed_types=[Model]).deserialize(before.serialize(value)) == value


# text that nobody should trust


def test_stored_text_imports_nothing_and_runs_no_code() -> None:
    """B082"""
    hostile = [
        {"__is_pydantic": True, "qualified_name": "os.system", "value": "true"},
        {"__is_component": True, "qualified_name": "subprocess.Popen", "value": ["true"]},
        {"__rlmc": base64.b64encode(pickle.dumps(print)).decode()},
        {"__rlmc": "not base64"},
        {"__rlmc": 7},
        {"__rlmc": base64.b64encode(b"PK\x03\x04").decode()},
        {"__rlmc": json.loads(RLMSerializer(allowed_types=[Point]).serialize(Point(1)))["__rlmc"]},
    ]
    for document in hostile:
        with pytest.raises(ValueError, match=r"allowed types|cannot be deserialised"):
            RLMSerializer().deserialize(json.dumps({"k": [document]}))
