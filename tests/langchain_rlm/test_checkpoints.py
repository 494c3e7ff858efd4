"""RLMSaver in graphs: sync and async, threads and loops, what is stored of a value and of a config, whole threads."""

from __future__ import annotations

import asyncio
import operator
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, SecretStr

from langchain_rlm import RLMSaver
from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError

CONFIG: Any = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}


@pytest.fixture(params=["file", "memory"])
def saver(request: pytest.FixtureRequest, store_path: Path) -> Any:
    with RLMSaver(store_path if request.param == "file" else None) as opened:
        yield opened
        assert opened.memory.check()


def checkpoint(id: str, **values: Any) -> Checkpoint:
    return {**empty_checkpoint(), "id": id, "channel_values": values, "channel_versions": dict.fromkeys(values, 1)}


class Trail(TypedDict):
    trail: Annotated[list[str], operator.add]


def adder(checkpointer: Any) -> Any:
    """A graph of two nodes that note the thread they ran in."""
    return (
        StateGraph(Trail)
        .add_node("one", lambda state: {"trail": [f"one after {len(state['trail'])}"]})
        .add_node("two", lambda state: {"trail": [f"two after {len(state['trail'])}"]})
        .add_edge(START, "one")
        .add_edge("one", "two")
        .add_edge("two", END)
        .compile(checkpointer=checkpointer)
    )


# -- graphs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_sync_and_async_graphs_go_on_with_the_same_thread(saver: RLMSaver, durability: Any) -> None:
    graph = adder(saver)
    graph.invoke({"trail": ["a"]}, CONFIG, durability=durability)
    result = await graph.ainvoke({"trail": ["b"]}, CONFIG, durability=durability)
    assert result["trail"] == ["a", "one after 1", "two after 2", "b", "one after 4", "two after 5"]
    assert graph.get_state(CONFIG).values == (await graph.aget_state(CONFIG)).values == result


def test_history_is_that_of_the_reference(saver: RLMSaver) -> None:
    def told(checkpointer: Any) -> list[Any]:
        graph = adder(checkpointer)
        graph.invoke({"trail": ["a"]}, CONFIG)
        past = list(graph.get_state_history(CONFIG))[2]
        graph.update_state(past.config, {"trail": ["updated"]})
        graph.invoke(None, CONFIG)
        graph.update_state(past.config, None, as_node="__copy__")
        graph.invoke(None, CONFIG)
        history = list(graph.get_state_history(CONFIG))
        places = {each.config["configurable"]["checkpoint_id"]: i for i, each in enumerate(history)}
        return [
            (
                each.values, each.next, each.metadata,
                each.parent_config and places[each.parent_config["configurable"]["checkpoint_id"]],
                [(task.name, task.error, task.result) for task in each.tasks],
            )
            for each in history
        ]  # fmt: skip

    assert told(saver) == told(InMemorySaver())


def test_interrupt_is_resumed_with_the_answer(saver: RLMSaver) -> None:
    def ask(state: Trail) -> Any:
        return {"trail": [interrupt("name?")]}

    graph = StateGraph(Trail).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver)
    assert graph.invoke({"trail": []}, CONFIG)["__interrupt__"][0].value == "name?"
    assert graph.invoke(Command(resume="Ada"), CONFIG)["trail"] == ["Ada"]


def test_graph_inside_a_graph_has_its_own_namespace(saver: RLMSaver) -> None:
    def ask(state: Trail) -> Any:
        return {"trail": [interrupt("inner?")]}

    inner = StateGraph(Trail).add_node("ask", ask).add_edge(START, "ask").compile()
    graph = StateGraph(Trail).add_node("inner", inner).add_edge(START, "inner").compile(checkpointer=saver)
    graph.invoke({"trail": []}, CONFIG)
    found = saver.list({"configurable": {"thread_id": "1"}})
    spaces = {each.config["configurable"]["checkpoint_ns"].split(":")[0] for each in found}
    assert spaces == {"", "inner"}
    assert graph.invoke(Command(resume="yes"), CONFIG)["trail"] == ["yes"]


def test_agent_goes_on_with_its_conversation_after_the_file_was_closed(store_path: Path) -> None:
    """B045"""
    for turn in range(2):
        with RLMSaver(store_path) as saver:
            agent = create_agent(GenericFakeChatModel(messages=iter([AIMessage(f"answer {turn}")])), checkpointer=saver)
            said = agent.invoke({"messages": [HumanMessage(f"question {turn}")]}, CONFIG)["messages"]
    assert [message.content for message in said] == ["question 0", "answer 0", "question 1", "answer 1"]


def test_every_loop_and_every_thread_may_use_one_saver(saver: RLMSaver) -> None:
    def run(number: int) -> int:
        config: Any = {"configurable": {"thread_id": number}}
        for _ in range(3):
            asyncio.run(adder(saver).ainvoke({"trail": ["a"]}, config))
        return len(adder(saver).get_state(config).values["trail"])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [9] * 8


async def test_sync_method_may_be_called_inside_the_loop(saver: RLMSaver) -> None:
    """B092"""
    saver.put(CONFIG, checkpoint("1", a=1), {"step": 0}, {"a": 1})
    found = saver.get_tuple(CONFIG)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": 1}


async def test_event_loop_is_free_while_another_process_holds_the_lock(store_path: Path) -> None:
    with RLMSaver(store_path) as saver, Memory.open(store_path, embedder=None) as other:
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with other._engine.transaction():
                held.set()
                release.wait(20)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(20)
        putting = asyncio.create_task(saver.aput(CONFIG, checkpoint("1"), {}, {}))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not putting.done()
        release.set()
        await putting
        holder.join()


METHODS: dict[str, Callable[[RLMSaver], Any]] = {
    "adelete_thread": lambda saver: saver.adelete_thread("none"),
    "adelete_for_runs": lambda saver: saver.adelete_for_runs(["none"]),
    "acopy_thread": lambda saver: saver.acopy_thread("none", "new"),
    "aprune": lambda saver: saver.aprune(["none"]),
    "aget_tuple": lambda saver: saver.aget_tuple(CONFIG),
    "aput": lambda saver: saver.aput(CONFIG, checkpoint("1"), {}, {}),
    "aput_writes": lambda saver: saver.aput_writes(
        {"configurable": {"thread_id": "1", "checkpoint_id": "1"}}, [("c", 1)], "task"
    ),
    "alist": lambda saver: anext(saver.alist(None), None),
    "aget_delta_channel_history": lambda saver: saver.aget_delta_channel_history(config=CONFIG, channels=["c"]),
}


@pytest.mark.parametrize("method", METHODS)
async def test_any_method_may_be_the_first(store_path: Path, method: str) -> None:
    """B147"""
    async with RLMSaver(store_path) as saver:
        await METHODS[method](saver)


async def test_new_file_may_be_used_by_many_at_once(store_path: Path) -> None:
    """B091"""
    savers = await asyncio.gather(*(asyncio.to_thread(RLMSaver, store_path) for _ in range(5)))
    await asyncio.gather(*(saver.aput(CONFIG, checkpoint(str(i)), {}, {}) for i, saver in enumerate(savers)))
    assert len([each async for each in savers[0].alist(CONFIG)]) == 5
    for saver in savers:
        saver.close()


# -- what is stored -------------------------------------------------------------------------------------------------


def test_messages_and_sends_come_back_equal(saver: RLMSaver) -> None:
    """B045"""
    values = {
        "messages": [
            HumanMessage("hi", id="1"),
            AIMessage("", id="2", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "call", "type": "tool_call"}]),
            ToolMessage("result " * 2000, id="3", tool_call_id="call"),
        ],
        "sends": [Send("node", {"a": HumanMessage("in it", id="4")})],
        "documents": [Document("text", metadata={"n": 1}, id="d")],
        "plain": {"bytes": b"\0\xff", "none": None, "nested": {"list": [1.5, "ü🙂\0", {"k": True}]}, 7: "int key"},
        "set": {1, 2},
        "none": None,
        "raw": b"x" * 10_000,
    }
    stored = saver.put(CONFIG, checkpoint("1", **values), {"step": 0}, dict.fromkeys(values, 1))
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.checkpoint == checkpoint("1", **values) | {"ts": found.checkpoint["ts"]}


@dataclass
class Point:
    x: int


class Model(BaseModel):
    x: int


def test_no_class_is_imported_from_stored_bytes_unless_allowed(saver: RLMSaver, monkeypatch: Any) -> None:
    permissive = JsonPlusSerializer(allowed_msgpack_modules=True)
    writer = RLMSaver(memory=saver.memory, serde=permissive)
    values = {"point": Point(1), "model": Model(x=2), "module": Bait(3)}
    stored = writer.put(CONFIG, checkpoint("1", **values), {}, dict.fromkeys(values, 1))
    monkeypatch.delitem(sys.modules, "never_imported", raising=False)
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"point": {"x": 1}, "model": {"x": 2}, "module": {"x": 3}}
    assert "never_imported" not in sys.modules
    allowing = RLMSaver(memory=saver.memory, allowed=[Point, (Model.__module__, "Model")])
    found = allowing.get_tuple(stored)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"point": Point(1), "model": Model(x=2), "module": {"x": 3}}


@dataclass
class Bait:
    x: int


Bait.__module__ = "never_imported"


def test_clone_with_an_allowlist_shares_the_file(saver: RLMSaver) -> None:
    clone: Any = saver.with_allowlist({(Point.__module__, "Point")})
    assert clone is not saver
    stored = clone.put(CONFIG, checkpoint("1", point=Point(1)), {}, {"point": 1})
    assert clone.get_tuple(stored).checkpoint["channel_values"] == {"point": Point(1)}
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.checkpoint["channel_values"] == {"point": {"x": 1}}


def test_serialiser_and_allowlist_exclude_each_other() -> None:
    with pytest.raises(InvalidInputError, match="allowed="):
        RLMSaver(serde=JsonPlusSerializer(), allowed=[Point])


def test_own_serialiser_is_used_for_everything_but_the_metadata(saver: RLMSaver) -> None:
    class Reversing:
        def dumps_typed(self, value: Any) -> tuple[str, bytes]:
            kind, content = JsonPlusSerializer().dumps_typed(value)
            return kind, content[::-1]

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            return JsonPlusSerializer().loads_typed((data[0], data[1][::-1]))

    other = RLMSaver(memory=saver.memory, serde=Reversing())
    stored = other.put(CONFIG, checkpoint("1", a="x" * 5000), {"step": 3}, {"a": 1})
    other.put_writes(stored, [("a", "written")], "task")
    found = other.get_tuple(stored)
    assert found is not None
    assert (found.checkpoint["channel_values"], found.metadata) == ({"a": "x" * 5000}, {"step": 3})
    assert found.pending_writes == [("task", "a", "written")]


def test_secrets_and_what_json_cannot_hold_are_not_in_the_file(store_path: Path) -> None:
    """B117"""
    config: Any = {
        "configurable": {
            "thread_id": "1",
            "foobar": object(),
            "api_key": SecretStr("hidden-object"),
            "password": "hidden-text",
            "header": "Bearer abcdefghijklmnopqrstuvwxyz",
            "user": "ada\0",
            "__internal": "hidden-internal",
        },
        "metadata": {"tags": ["not a scalar"], "tenant": 7},
    }
    with RLMSaver(store_path) as saver:
        saver.put(config, checkpoint("1"), {"step": 0, "bad": object(), "nan": float("nan")}, {})  # type: ignore[typeddict-unknown-key]
        found = saver.get_tuple(config)
        assert found is not None
        metadata: Any = dict(found.metadata)
        assert metadata.pop("password") == metadata.pop("header") == "[redacted]"
        assert metadata == {"step": 0, "user": "ada", "tenant": 7}
    stored = b"".join(path.read_bytes() for path in store_path.parent.iterdir())
    for secret in (b"hidden", b"abcdefghijklmnop"):
        assert secret not in stored


# -- threads, order, writes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [{"lone \ud800 surrogate": 1}, threading.Lock()], ids=["surrogate", "lock"])
def test_value_that_the_serialiser_cannot_hold_is_refused_and_nothing_written(saver: RLMSaver, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        saver.put(CONFIG, checkpoint("1", good=1, bad=value), {"source": "input"}, {"good": 1, "bad": 1})
    assert saver.get_tuple(CONFIG) is None
    stored = saver.put(CONFIG, checkpoint("1", good=1), {"source": "input"}, {"good": 1})
    with pytest.raises(InvalidInputError, match="cannot be stored"):
        saver.put_writes(stored, [("good", 1), ("bad", value)], "task")
    found = saver.get_tuple(CONFIG)
    assert found is not None
    assert found.pending_writes == []


def test_thread_id_is_a_text_whatever_it_was(saver: RLMSaver) -> None:
    """B113"""
    saver.put({"configurable": {"thread_id": 1}}, checkpoint("1"), {}, {})
    found = saver.get_tuple({"configurable": {"thread_id": "1"}})
    assert found is not None
    assert found.config["configurable"] == {"thread_id": "1", "checkpoint_ns": "", "checkpoint_id": "1"}
    saver.delete_thread(1)  # type: ignore[arg-type]
    assert saver.get_tuple(CONFIG) is None


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, {"configurable": {"thread_id": None}}])
def test_missing_thread_id_is_named(saver: RLMSaver, config: Any) -> None:
    """B113"""
    with pytest.raises(InvalidInputError, match="no 'thread_id'"):
        saver.get_tuple(config)
    with pytest.raises(InvalidInputError, match="no 'thread_id'"):
        saver.put(config, checkpoint("1"), {}, {})
    with pytest.raises(InvalidInputError, match="no 'checkpoint_id'"):
        saver.put_writes(CONFIG, [("c", 1)], "task")


async def test_order_is_that_of_the_puts(saver: RLMSaver) -> None:
    """B125 B136"""
    config = CONFIG
    ids = ["z-older", "a-younger", *(str(i) for i in range(100))]
    for id in ids:
        config = saver.put(config, checkpoint(id), {}, {})
    latest = saver.get_tuple(CONFIG)
    assert latest is not None
    assert latest.checkpoint["id"] == "99"
    assert latest.parent_config is not None
    assert latest.parent_config["configurable"]["checkpoint_id"] == "98"
    assert [each.checkpoint["id"] for each in saver.list(CONFIG)] == ids[::-1]
    assert [each.checkpoint["id"] async for each in saver.alist(CONFIG, limit=40)] == ids[:-41:-1]
    puts = [saver.aput(CONFIG, checkpoint(f"gathered {i}"), {}, {}) for i in range(20)]
    await asyncio.gather(*puts)
    assert len([each async for each in saver.alist(CONFIG)]) == len(ids) + 20


def test_list_takes_filters_on_metadata(saver: RLMSaver) -> None:
    """B149"""
    for i in range(4):
        metadata: Any = {"step": i, "tenant_id": "acme" if i % 2 else "other", "it's.odd": {"k": [i]}}
        saver.put({"configurable": {"thread_id": str(i)}}, checkpoint(str(i)), metadata, {})

    def steps(filter: Any, config: Any = None) -> list[Any]:
        return [each.metadata["step"] for each in saver.list(config, filter=filter)]

    assert steps({"tenant_id": "acme"}, {}) == [3, 1]
    assert steps({"tenant_id": "acme", "step": 1}) == [1]
    assert steps({"step": {"$gte": 2}}) == [3, 2]
    assert steps({"it's.odd": {"k": [2]}}) == [2]
    assert steps({"tenant_id": "acme' OR 1=1 --"}) == []
    assert steps({"step": True}) == []
    assert steps({}) == [3, 2, 1, 0]


def test_writes_of_a_task_are_kept_once_but_the_last_error_counts(saver: RLMSaver) -> None:
    stored = saver.put(CONFIG, checkpoint("1"), {}, {})
    saver.put_writes(stored, [("a", "first"), ("b", "x")], "task", "~2")
    saver.put_writes(stored, [("a", "again")], "task", "~2")
    saver.put_writes(stored, [("__error__", "old")], "other", "~1")
    saver.put_writes(stored, [("__error__", "new")], "other", "~1")
    found = saver.get_tuple(stored)
    assert found is not None
    assert found.pending_writes == [("other", "__error__", "new"), ("task", "a", "first"), ("task", "b", "x")]


def test_value_is_that_of_its_branch_though_versions_are_counted_alike(saver: RLMSaver) -> None:
    root = saver.put(CONFIG, checkpoint("root", a="root"), {}, {"a": 1})
    for branch in ("left", "right"):
        value = {**checkpoint(branch, a=branch * 1000), "channel_versions": {"a": 2}}
        child = saver.put(root, value, {}, {"a": 2})
        grandchild = saver.put(child, {**value, "id": f"{branch} again"}, {}, {})
        found = saver.get_tuple(grandchild)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": branch * 1000}
    copied = {**checkpoint("copy", a="left"), "channel_versions": {"a": 2}}
    found = saver.get_tuple(saver.put(root, copied, {"source": "fork"}, {}))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": "left"}, "the parent has version 1"


def test_next_version_grows_from_what_is_there() -> None:
    saver = RLMSaver()
    assert [saver.get_next_version(None, None), saver.get_next_version(1, None)] == [1, 2]
    text = InMemorySaver().get_next_version(None, None)
    assert text < saver.get_next_version(text, None) < saver.get_next_version(saver.get_next_version(text, None), None)
    saver.close()


def test_tiers_of_the_memories_are_those_of_the_checkpoint(saver: RLMSaver) -> None:
    saver.memory.add(["a", "b"], ids=["a", "b"])
    saver.memory.promote("a", "session", reason="test")
    before = saver.put(CONFIG, checkpoint("1"), {}, {})
    saver.memory.promote("a", "longterm", reason="test")
    after = saver.put(before, checkpoint("2"), {}, {})
    assert saver.tiers_at(before) == {"a": "session", "b": "task"}
    assert saver.tiers_at(after) == saver.tiers_at(CONFIG) == {"a": "longterm", "b": "task"}
    assert asyncio.run(saver.atiers_at(before)) == {"a": "session", "b": "task"}


# -- whole threads --------------------------------------------------------------------------------------------------


class Deltas(TypedDict):
    log: Annotated[list[str], DeltaChannel(lambda old, new: old + [each for some in new for each in some], list)]


def deltas(checkpointer: Any) -> Any:
    return (
        StateGraph(Deltas)
        .add_node("node", lambda state: {"log": [f"after {len(state['log'])}"]})
        .add_edge(START, "node")
        .compile(checkpointer=checkpointer)
    )


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
@pytest.mark.parametrize("turns", [2, 60])
def test_delta_channel_survives_prune_and_copy(saver: RLMSaver, turns: int) -> None:
    graph = deltas(saver)
    for turn in range(turns):
        graph.invoke({"log": [f"turn {turn}"]}, CONFIG)
    whole = graph.get_state(CONFIG).values["log"]
    assert len(whole) == 2 * turns
    before = len(list(saver.list(CONFIG)))
    saver.copy_thread("1", "copy")
    saver.prune(["1"])
    assert graph.get_state(CONFIG).values["log"] == whole
    assert graph.get_state({"configurable": {"thread_id": "copy"}}).values["log"] == whole
    if turns == 60:
        assert len(list(saver.list(CONFIG))) < before / 2, "what lies before the last snapshot is gone"
    graph.invoke({"log": ["one more"]}, CONFIG)
    assert graph.get_state(CONFIG).values["log"][:-2] == whole


def test_pruned_thread_of_an_agent_goes_on_and_is_smaller(saver: RLMSaver) -> None:
    """B067"""
    graph = adder(saver)
    for turn in range(20):
        graph.invoke({"trail": [f"{turn} {'x' * 500}"]}, CONFIG)
    before = saver.memory.stats()
    saver.prune(["1", "unknown"])
    after = saver.memory.stats()
    assert len(list(saver.list(CONFIG))) == 1
    assert after.file_bytes - after.free_bytes < before.file_bytes - before.free_bytes
    assert len(graph.invoke({"trail": ["more"]}, CONFIG)["trail"]) == 63
    saver.prune(["1"], strategy="delete")
    assert saver.get_tuple(CONFIG) is None
    with pytest.raises(InvalidInputError, match="keep_latest"):
        saver.prune(["1"], strategy="keep_none")


def test_steps_of_a_long_conversation_share_its_messages(saver: RLMSaver) -> None:
    """B067"""
    config, messages, size = CONFIG, [], []
    for step in range(500):
        messages.append(HumanMessage(f"{step} " + "words of a message " * 10, id=str(step)))
        value = {**checkpoint(f"{step:03}", messages=list(messages)), "channel_versions": {"messages": step}}
        config = saver.put(config, value, {"step": step}, {"messages": step})
        if step in (249, 499):
            size.append(saver.memory.stats().file_bytes)
    assert size[1] < 3_000_000, "500 lists of 75 kB on average"
    found = saver.get_tuple(CONFIG)
    assert found is not None
    assert found.checkpoint["channel_values"]["messages"] == messages
    saver.delete_thread("1")
    assert saver.memory.stats().free_bytes > 0.9 * (size[1] - size[0])


def test_memory_that_was_given_stays_open() -> None:
    with Memory.open(":memory:", embedder=None) as memory:
        with RLMSaver(memory=memory) as saver:
            saver.put(CONFIG, checkpoint("1"), {}, {})
        assert RLMSaver(memory=memory).get_tuple(CONFIG) is not None
    with pytest.raises(InvalidInputError, match="memory= is open already"):
        RLMSaver("path.db", memory=memory)
