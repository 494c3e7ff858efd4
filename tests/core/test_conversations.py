"""Conversations: messages under keys, kept in order beside the memories. On each place a store can be."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_memory import AsyncMemory, Conversations, Memory
from rlm_memory.errors import InvalidInputError, StoreReadOnlyError
from support import SettableClock

HOSTILE_KEYS = [
    "", " ", "chat", "Chat", "chat ", "chat%", "chat_", "chat-", "*", "%", "_", "' OR 1=1 --", 'x"y', "a\0b", "a", "é",
    "e\N{COMBINING ACUTE ACCENT}", "🗝", "chat\n", "llamaindex:chat",
]  # fmt: skip


@pytest.fixture(params=["file", "memory"])
def memory(request: pytest.FixtureRequest, store_path: Path, clock: SettableClock) -> Iterator[Memory]:
    location = store_path if request.param == "file" else ":memory:"
    with Memory.open(location, embedder=None, clock=clock) as memory:
        yield memory
        assert memory.check()


@pytest.fixture
def conversations(memory: Memory) -> Conversations:
    return memory.conversations


def contents(conversations: Conversations, key: str = "chat", **options: Any) -> list[Any]:
    return [message.content for message in conversations.list(key, **options)]


def test_messages_come_back_as_they_were_in_the_order_they_were_added(
    conversations: Conversations, clock: SettableClock
) -> None:
    first = conversations.append("chat", [{"role": "user", "n": 1, "deep": {"list": [1, 2.5, None, True, "é"]}}])
    clock.advance(days=-1)  # the order is that of the calls, not of the clock
    second = conversations.append("chat", ["only a text", None, [], 0])
    assert conversations.list("chat") == [*first, *second]
    assert [message.content for message in second] == ["only a text", None, [], 0]
    assert first[0].created_at > second[0].created_at == clock()
    assert [message.id for message in second] == sorted(message.id for message in second)


def test_unknown_key_has_nothing(conversations: Conversations) -> None:
    assert conversations.list("chat") == []
    assert conversations.count("chat") == 0
    assert conversations.delete("chat") == []
    assert conversations.delete_oldest("chat", 3) == []
    assert conversations.archive_oldest("chat", 3) == []
    assert conversations.append("chat", []) == []
    assert conversations.keys() == []
    assert conversations.clear() == 0


def test_page_of_a_conversation(conversations: Conversations) -> None:
    conversations.append("chat", list(range(10)))
    assert contents(conversations, limit=3) == [0, 1, 2]
    assert contents(conversations, limit=3, offset=8) == [8, 9]
    assert contents(conversations, offset=8) == [8, 9]
    assert contents(conversations, limit=0) == []


def test_archived_messages_stay_in_their_place(conversations: Conversations) -> None:
    conversations.append("chat", ["a", "b", "c"])
    archived = conversations.archive_oldest("chat", 2)
    assert [(message.content, message.status) for message in archived] == [("a", "archived"), ("b", "archived")]
    assert contents(conversations) == ["a", "b", "c"]
    assert contents(conversations, status="active") == ["c"]
    assert contents(conversations, status="archived") == ["a", "b"]
    assert (conversations.count("chat"), conversations.count("chat", status="archived")) == (3, 2)
    assert [message.content for message in conversations.archive_oldest("chat", 9)] == ["c"]
    assert conversations.archive_oldest("chat", 9) == []


def test_oldest_are_the_oldest_active_ones(conversations: Conversations) -> None:
    conversations.append("chat", ["archived"], status="archived")
    conversations.append("chat", ["a", "b", "c"])
    assert [message.content for message in conversations.delete_oldest("chat", 2)] == ["a", "b"]
    assert contents(conversations) == ["archived", "c"]


def test_deletion_of_one_of_a_status_and_of_all(conversations: Conversations) -> None:
    messages = conversations.append("chat", ["a", "b", "c", "d"])
    other = conversations.append("other", ["x"])
    conversations.archive_oldest("chat", 1)
    assert [message.content for message in conversations.delete("chat", messages[1].id)] == ["b"]
    assert conversations.delete("chat", messages[1].id) == []
    assert conversations.delete("chat", other[0].id) == []  # of another conversation
    assert conversations.delete("chat", messages[2].id, status="archived") == []
    assert [message.content for message in conversations.delete("chat", status="archived")] == ["a"]
    assert [message.content for message in conversations.delete("chat")] == ["c", "d"]
    assert conversations.keys() == ["other"]


def test_replacing_takes_the_place_of_archived_messages_too(conversations: Conversations) -> None:
    conversations.append("chat", ["a", "b"])
    conversations.archive_oldest("chat", 1)
    conversations.append("other", ["x"])
    conversations.replace("chat", ["c"], status="archived")
    assert [(m.content, m.status) for m in conversations.list("chat")] == [("c", "archived")]
    conversations.replace("chat", [])
    assert conversations.keys() == ["other"]


UNFIT = [
    object(), {"x": object()}, {1: "key"}, (1, 2), {"x": {1}}, float("nan"), b"bytes", "lone \ud83d", {"\ud83d": 1},
]  # fmt: skip


@pytest.mark.parametrize("unfit", UNFIT, ids=repr)
def test_refused_message_leaves_the_history_as_it_was(conversations: Conversations, unfit: object) -> None:
    """B108, B101"""
    before = conversations.append("chat", ["a", "b"])
    for write in (conversations.replace, conversations.append):
        with pytest.raises(InvalidInputError, match="Message 1"):
            write("chat", ["fine", unfit])
    assert conversations.list("chat") == before


def test_iterable_that_fails_leaves_the_history_as_it_was(conversations: Conversations) -> None:
    """B108"""

    def broken() -> Iterator[str]:
        yield "fine"
        raise OSError("the source broke off")

    before = conversations.append("chat", ["a"])
    with pytest.raises(OSError, match="broke off"):
        conversations.replace("chat", broken())
    assert conversations.list("chat") == before


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.list(None),
        lambda c: c.append(5, []),
        lambda c: c.append("lone \ud83d", []),
        lambda c: c.list("chat", status="gone"),
        lambda c: c.append("chat", [1], status=None),
        lambda c: c.append("chat", [1], status="gone"),
        lambda c: c.list("chat", limit=-1),
        lambda c: c.list("chat", offset=-1),
        lambda c: c.archive_oldest("chat", -1),
        lambda c: c.delete_oldest("chat", 1.5),
        lambda c: c.delete("chat", "1"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(
    conversations: Conversations, call: Callable[[Conversations], object]
) -> None:
    before = conversations.append("chat", ["a"])
    with pytest.raises(InvalidInputError):
        call(conversations)
    assert conversations.list("chat") == before


def test_look_alike_keys_never_see_each_other(conversations: Conversations) -> None:
    """B132, B137"""
    for key in HOSTILE_KEYS:
        conversations.append(key, [f"in {key}"])
    assert conversations.keys() == sorted(HOSTILE_KEYS, key=str.encode)
    for key in HOSTILE_KEYS:
        assert contents(conversations, key) == [f"in {key}"]
    for position, key in enumerate(HOSTILE_KEYS):
        assert len(conversations.delete(key)) == 1
        assert len(conversations.keys()) == len(HOSTILE_KEYS) - position - 1


def test_namespaces_never_see_each_other(store_path: Path) -> None:
    """B044"""
    with (
        Memory.open(store_path, embedder=None, namespace="me") as mine,
        Memory.open(store_path, embedder=None, namespace="you") as yours,
    ):
        [secret] = yours.conversations.append("chat", ["secret"])
        mine.conversations.append("chat", ["mine"])
        assert contents(mine.conversations) == ["mine"]
        assert mine.conversations.delete("chat", secret.id) == []
        assert mine.conversations.clear() == 1
        assert contents(yours.conversations) == ["secret"]


def test_memories_and_conversations_leave_each_other_alone(memory: Memory) -> None:
    memory.add("Oslo is in Norway.")
    memory.conversations.append("chat", ["Oslo"])
    assert [hit.text for hit in memory.search("Oslo", k=5)] == ["Oslo is in Norway."]
    assert memory.clear() == 1
    assert contents(memory.conversations) == ["Oslo"]
    memory.add("Oslo is in Norway.")
    assert memory.conversations.clear() == 1
    assert memory.count() == 1


def test_written_is_there_for_the_next_process(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        memory.conversations.append("chat", ["a", "b"])
        memory.conversations.archive_oldest("chat", 1)
    with Memory.open(store_path, embedder=None, read_only=True) as memory:
        assert [(m.content, m.status) for m in memory.conversations.list("chat")] == [
            ("a", "archived"),
            ("b", "active"),
        ]
        with pytest.raises(StoreReadOnlyError):
            memory.conversations.append("chat", ["c"])


def test_export_and_backup_take_conversations_along(store_path: Path, tmp_path: Path, clock: SettableClock) -> None:
    with Memory.open(store_path, embedder=None, clock=clock) as memory:
        memory.add("Oslo is in Norway.")
        memory.conversations.append("chat", [{"says": "a\n\u2028b"}, None, "c"])
        memory.conversations.archive_oldest("chat", 1)
        memory.conversations.append("other", [1])
        assert memory.export(tmp_path / "all.jsonl") == 1
        memory.backup(tmp_path / "copy.db")
        expected = [
            (m.key, m.content, m.status, m.created_at) for k in ("chat", "other") for m in memory.conversations.list(k)
        ]
    clock.advance(days=1)
    with Memory.open(tmp_path / "new.db", embedder=None, clock=clock) as new:
        new.conversations.append("chat", ["older"])
        new.conversations.append("stays", ["here"])
        for _ in range(2):  # twice is once
            assert new.import_(tmp_path / "all.jsonl") == 1
            found = [
                (m.key, m.content, m.status, m.created_at) for k in ("chat", "other") for m in new.conversations.list(k)
            ]
            assert found == expected
        assert new.conversations.keys() == ["chat", "other", "stays"]
        assert new.check()
    with Memory.open(tmp_path / "copy.db", embedder=None) as copy:
        assert contents(copy.conversations) == [{"says": "a\n\u2028b"}, None, "c"]


@pytest.mark.parametrize(
    "line",
    [
        '{"message": {"key": "chat", "status": "active", "content": 1}}',
        '{"message": {"key": 5, "status": "active", "created_at": "2026-01-01T00:00:00+00:00", "content": 1}}',
        '{"message": {"key": "chat", "status": "gone", "created_at": "2026-01-01T00:00:00+00:00", "content": 1}}',
        '{"message": {"key": "chat", "status": "active", "created_at": "yesterday", "content": 1}}',
        '{"message": {"key": "", "status": "active", "created_at": "2026-01-01T00:00:00+00:00", "content": 1, "x": 1}}',
        '{"message": {"key": "chat", "status": ["active"], "created_at": "2026-01-01T00:00:00+00:00", "content": 1}}',
        '{"message": "text"}',
        '{"message": null}',
    ],
)
def test_import_of_a_broken_message_names_its_line_and_keeps_nothing(
    store_path: Path, tmp_path: Path, line: str
) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        memory.conversations.append("chat", ["kept"])
        memory.export(tmp_path / "all.jsonl")
        *lines, _ = (tmp_path / "all.jsonl").read_text("utf-8").splitlines()
        (tmp_path / "all.jsonl").write_text("\n".join([*lines, line]) + "\n", "utf-8")
        memory.conversations.replace("chat", ["newer"])
        with pytest.raises(InvalidInputError, match="Line 3"):
            memory.import_(tmp_path / "all.jsonl")
        assert contents(memory.conversations) == ["newer"]


def test_check_finds_a_message_that_is_not_json(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        [message] = memory.conversations.append("chat", ["a"])
        assert memory.check()
    connection = apsw.Connection(str(store_path))
    connection.execute("UPDATE messages SET content = '{'")
    connection.close()
    with Memory.open(store_path, embedder=None) as memory:
        [problem] = memory.check()
        assert problem.where == f"message {message.id} of conversation 'chat'"


def _append(path: Path, name: str, count: int) -> None:
    with Memory.open(path, embedder=None) as memory:
        for number in range(count):
            memory.conversations.append("chat", [[name, number], [name, number + 0.5]])


def test_two_processes_append_without_loss_or_disorder(store_path: Path) -> None:
    """B008"""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append, args=(store_path, name, 20)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    with Memory.open(store_path, embedder=None) as memory:
        found = contents(memory.conversations)
        for name in ("a", "b"):
            own = [number for writer, number in found if writer == name]
            assert own == [n / 2 for n in range(40)]
        # what one call adds stands together
        assert all(found[i][0] == found[i + 1][0] for i in range(0, 80, 2))
        assert memory.check()


def test_each_message_is_archived_by_one_thread_alone(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        memory.conversations.append("chat", list(range(40)))
        taken: list[list[int]] = []

        def archive() -> None:
            while some := memory.conversations.archive_oldest("chat", 3):
                taken.append([message.content for message in some])

        threads = [threading.Thread(target=archive) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(number for some in taken for number in some) == list(range(40))


async def test_asynchronous_conversations_do_the_same(memory: Memory) -> None:
    conversations = AsyncMemory(memory).conversations
    messages = await conversations.append("chat", ["a", "b", "c", "d"])
    assert await conversations.list("chat", limit=1) == messages[:1]
    assert [m.content for m in await conversations.archive_oldest("chat", 1)] == ["a"]
    assert [m.content for m in await conversations.delete_oldest("chat", 1)] == ["b"]
    assert [m.content for m in await conversations.delete("chat", messages[2].id)] == ["c"]
    assert await conversations.count("chat", status="active") == 1
    await conversations.replace("chat", ["e"])
    assert await conversations.keys() == ["chat"]
    await asyncio.gather(*(conversations.append("chat", [i]) for i in range(20)))
    assert sorted(contents(memory.conversations)[1:]) == list(range(20))
    assert await conversations.clear() == 21


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(["add", "archive", "delete", "replace"]), st.integers(0, 4), json_values)))
def test_conversation_is_what_a_list_would_be(steps: list[tuple[str, int, Any]]) -> None:
    with Memory.open(":memory:", embedder=None) as memory:
        model: list[tuple[Any, str]] = []
        for step, n, value in steps:
            oldest = [i for i, (_, status) in enumerate(model) if status == "active"][:n]
            match step:
                case "add":
                    memory.conversations.append("chat", [value] * n)
                    model += [(value, "active")] * n
                case "archive":
                    memory.conversations.archive_oldest("chat", n)
                    model = [(v, "archived" if i in oldest else s) for i, (v, s) in enumerate(model)]
                case "delete":
                    memory.conversations.delete_oldest("chat", n)
                    model = [entry for i, entry in enumerate(model) if i not in oldest]
                case "replace":
                    memory.conversations.replace("chat", [value] * n)
                    model = [(value, "active")] * n
            assert [(m.content, m.status) for m in memory.conversations.list("chat")] == model
        assert memory.check()
