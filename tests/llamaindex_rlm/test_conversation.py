"""Chat stores: the same scenarios as LlamaIndex's own store, and what one file under transactions adds."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from llama_index.core.workflow import Context, JsonSerializer, StartEvent, StopEvent, Workflow, step
from sqlalchemy.ext.asyncio import create_async_engine

from llamaindex_rlm import RLMChatStore, RLMSyncChatStore
from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError, StoreCorruptError

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED

Step: TypeAlias = tuple[str, Any, Any]
"""A method, its arguments, and what it returns: texts for messages."""


def say(text: str, role: str = "user", **extra: Any) -> ChatMessage:
    return ChatMessage(text, role=role, additional_kwargs=extra)


def texts(found: Any) -> Any:
    if isinstance(found, ChatMessage):
        return found.content
    return [texts(one) for one in found] if isinstance(found, list) else found


ABC = ("set_messages", ("k", [say("a"), say("b"), say("c")]), None)

SCENARIOS: dict[str, list[Step]] = {
    "nothing yet": [
        ("get_messages", ("k",), []),
        ("count_messages", ("k",), 0),
        ("get_keys", (), []),
        ("delete_message", ("k", 1), None),
        ("delete_messages", ("k",), None),
        ("delete_oldest_messages", ("k", 2), []),
        ("archive_oldest_messages", ("k", 2), []),
    ],
    "added one by one and together": [
        ("add_message", ("k", say("a")), None),
        ("add_messages", ("k", [say("b", "assistant"), say("c")]), None),
        ("add_message", ("k", say("d")), None),
        ("get_messages", ("k",), ["a", "b", "c", "d"]),
        ("count_messages", ("k",), 4),
    ],
    "keys are apart": [
        ABC,
        ("add_message", ("other", say("x")), None),
        ("get_keys", (), ["k", "other"]),
        ("delete_messages", ("k",), None),
        ("get_messages", ("other",), ["x"]),
        ("get_keys", (), ["other"]),
    ],
    "pages": [
        ABC,
        ("get_messages", ("k", ACTIVE, 2), ["a", "b"]),
        ("get_messages", ("k", ACTIVE, 2, 1), ["b", "c"]),
        ("get_messages", ("k", ACTIVE, None, 2), ["c"]),
        ("get_messages", ("k", ACTIVE, 0), []),
        ("get_messages", ("k", ACTIVE, 5, 7), []),
    ],
    "the oldest are archived": [
        ABC,
        ("archive_oldest_messages", ("k", 2), ["a", "b"]),
        ("get_messages", ("k",), ["c"]),
        ("get_messages", ("k", ARCHIVED), ["a", "b"]),
        ("get_messages", ("k", None), ["a", "b", "c"]),
        ("count_messages", ("k",), 1),
        ("count_messages", ("k", ARCHIVED), 2),
        ("count_messages", ("k", None), 3),
        ("add_message", ("k", say("d")), None),
        ("archive_oldest_messages", ("k", 1), ["c"]),
        ("get_messages", ("k", None, 2, 1), ["b", "c"]),
        ("archive_oldest_messages", ("k", 9), ["d"]),
        ("archive_oldest_messages", ("k", 9), []),
        ("archive_oldest_messages", ("k", 0), []),
    ],
    "the oldest are deleted, and archived ones are not the oldest": [
        ABC,
        ("archive_oldest_messages", ("k", 1), ["a"]),
        ("delete_oldest_messages", ("k", 1), ["b"]),
        ("get_messages", ("k", None), ["a", "c"]),
        ("delete_oldest_messages", ("k", 0), []),
        ("delete_oldest_messages", ("k", 5), ["c"]),
        ("get_messages", ("k", None), ["a"]),
    ],
    "set takes the place of all": [
        ABC,
        ("archive_oldest_messages", ("k", 2), ["a", "b"]),
        ("set_messages", ("k", [say("x"), say("y")]), None),
        ("get_messages", ("k", None), ["x", "y"]),
        ("set_messages", ("k", [say("z")], ARCHIVED), None),
        ("get_messages", ("k",), []),
        ("get_messages", ("k", ARCHIVED), ["z"]),
        ("set_messages", ("k", []), None),
        ("get_messages", ("k", None), []),
        ("get_keys", (), []),
    ],
    "added as archived": [
        ("add_message", ("k", say("a"), ARCHIVED), None),
        ("add_messages", ("k", [say("b"), say("c")], ARCHIVED), None),
        ("add_message", ("k", say("d")), None),
        ("get_messages", ("k",), ["d"]),
        ("get_messages", ("k", None), ["a", "b", "c", "d"]),
    ],
    "deleted by status": [
        ABC,
        ("archive_oldest_messages", ("k", 1), ["a"]),
        ("delete_messages", ("k", ACTIVE), None),
        ("get_messages", ("k", None), ["a"]),
        ("add_message", ("k", say("d")), None),
        ("delete_messages", ("k", ARCHIVED), None),
        ("get_messages", ("k", None), ["d"]),
        ("delete_messages", ("k", None), None),
        ("get_messages", ("k", None), []),
    ],
    "deleted by number, which counts over all keys": [
        ABC,
        ("add_message", ("other", say("x")), None),
        ("delete_message", ("k", 2), "b"),
        ("delete_message", ("k", 2), None),
        ("delete_message", ("k", 4), None),
        ("delete_message", ("other", 4), "x"),
        ("delete_message", ("k", 99), None),
        ("archive_oldest_messages", ("k", 1), ["a"]),
        ("delete_message", ("k", 1), "a"),
        ("get_messages", ("k", None), ["c"]),
    ],
    "keys are texts and no patterns": [
        ("add_message", ("%", say("1")), None),
        ("add_message", ("_", say("2")), None),
        ("add_message", ("' OR 1=1 --", say("3")), None),
        ("get_messages", ("%",), ["1"]),
        ("get_messages", ("_",), ["2"]),
        ("get_messages", ("' OR 1=1 --",), ["3"]),
        ("delete_messages", ("%",), None),
        ("get_keys", (), ["' OR 1=1 --", "_"]),
    ],
}


@pytest.fixture(params=["theirs", "file", "memory"])
async def store(request: pytest.FixtureRequest, store_path: Path) -> AsyncIterator[AsyncDBChatStore]:
    if request.param == "theirs":
        engine = create_async_engine("sqlite+aiosqlite:///:memory:")
        yield SQLAlchemyChatStore("messages", async_engine=engine)
        await engine.dispose()
        return
    ours = RLMChatStore.from_params(store_path if request.param == "file" else ":memory:")
    yield ours
    assert ours.client.check()
    ours.client.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_store_does_what_the_store_of_llamaindex_does(store: AsyncDBChatStore, scenario: str) -> None:
    for name, arguments, expected in SCENARIOS[scenario]:
        found = texts(await getattr(store, name)(*arguments))
        assert (sorted(found) if name == "get_keys" else found) == expected, (name, arguments)


PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

MESSAGES = [
    say("plain"),
    say("", "system"),
    ChatMessage(role="assistant", blocks=[]),
    ChatMessage(role="user", blocks=[TextBlock(text="one"), TextBlock(text="two")]),
    ChatMessage(role="user", blocks=[ImageBlock(image=PIXEL), ImageBlock(url="https://example.org/a.png")]),
    ChatMessage(role="assistant", blocks=[ThinkingBlock(content="hm"), ToolCallBlock(tool_name="f", tool_kwargs={})]),
    say("result", "tool", tool_call_id="1", nested={"list": [1, 2.5, None, True, {"deep": "é\n\u2028"}]}),
    say("' OR 1=1; -- \0 🗝 \N{COMBINING ACUTE ACCENT}"),
]  # fmt: skip


async def test_messages_come_back_as_they_were(store: AsyncDBChatStore) -> None:
    await store.add_messages("k", MESSAGES)
    assert await store.get_messages("k") == MESSAGES


async def test_what_json_does_not_have_comes_back_as_llamaindex_writes_it(store: AsyncDBChatStore) -> None:
    await store.add_message("k", say("a", raw=b"\0\1", pair=(1, 2), number=float("nan")))
    [message] = await store.get_messages("k")
    assert message.additional_kwargs == {"raw": "AAE=", "pair": [1, 2], "number": None}


# -- ours alone -----------------------------------------------------------------------------------------------------


@pytest.fixture
def ours(store_path: Path) -> Iterator[RLMChatStore]:
    store = RLMChatStore.from_params(store_path)
    yield store
    assert store.client.check()
    store.client.close()


UNFIT = [say("x", thing=object()), say("lone \ud83d"), {"role": "user"}, None]


@pytest.mark.parametrize("unfit", UNFIT, ids=repr)
async def test_refused_message_leaves_the_history_as_it_was(ours: RLMChatStore, unfit: Any) -> None:
    """B108, B101. LlamaIndex's own store has deleted the history by then."""
    await ours.set_messages("k", [say("a"), say("b")])
    await ours.archive_oldest_messages("k", 1)
    for write in (ours.set_messages, ours.add_messages):
        with pytest.raises(InvalidInputError, match=r"[Mm]essage 1"):
            await write("k", [say("fine"), unfit])
    assert texts(await ours.get_messages("k", ARCHIVED)) == ["a"]
    assert texts(await ours.get_messages("k")) == ["b"]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.get_messages(None),
        lambda store: store.get_messages("k", "gone"),
        lambda store: store.archive_oldest_messages("k", -1),
        lambda store: store.add_message("k", say("a"), None),
    ],
)
async def test_arguments_that_mean_nothing_are_refused(ours: RLMChatStore, call: Any) -> None:
    with pytest.raises(InvalidInputError):
        await call(ours)


async def test_history_is_there_for_the_next_process(ours: RLMChatStore, store_path: Path) -> None:
    await ours.add_messages("k", MESSAGES)
    await ours.archive_oldest_messages("k", 2)
    again = RLMChatStore.from_params(store_path)
    assert await again.get_messages("k") == MESSAGES[2:]
    assert await again.get_messages("k", None) == MESSAGES
    again.client.close()


async def test_messages_of_others_are_not_shown_and_not_touched(ours: RLMChatStore) -> None:
    """Another framework keeps its messages under the same session id."""
    conversations = ours.client.conversations
    conversations.append("k", [{"type": "human", "data": {"content": "hi"}}])
    await ours.add_message("k", say("a"))
    assert texts(await ours.get_messages("k")) == ["a"]
    assert await ours.get_keys() == ["k"]
    await ours.delete_messages("k")
    assert conversations.count("k") == 1


async def test_message_that_is_none_of_llamaindex_is_named(ours: RLMChatStore) -> None:
    ours.client.conversations.append("llamaindex:k", [{"role": "a role of tomorrow"}])
    with pytest.raises(StoreCorruptError, match="Message 1 of chat 'k'"):
        await ours.get_messages("k")


async def test_tenants_never_see_each_other(ours: RLMChatStore, store_path: Path) -> None:
    await ours.add_message("k", say("mine"))
    other = RLMChatStore.from_params(store_path, namespace="other")
    assert await other.get_keys() == []
    assert await other.delete_message("k", 1) is None
    await other.delete_messages("k")
    assert texts(await ours.get_messages("k")) == ["mine"]
    other.client.close()


async def test_tasks_at_once_lose_nothing(ours: RLMChatStore) -> None:
    """B091"""
    await asyncio.gather(*(ours.add_messages("k", [say(f"{i}a"), say(f"{i}b")]) for i in range(20)))
    found = texts(await ours.get_messages("k"))
    assert sorted(found) == sorted(f"{i}{part}" for i in range(20) for part in "ab")
    assert all(found[i][:-1] == found[i + 1][:-1] for i in range(0, 40, 2))
    archived = await asyncio.gather(*(ours.archive_oldest_messages("k", 7) for _ in range(8)))
    assert sorted(texts([message for some in archived for message in some])) == sorted(found)


async def test_memory_of_llamaindex_goes_on_where_it_was(ours: RLMChatStore, store_path: Path) -> None:
    def chat(store: RLMChatStore) -> ChatMemory:
        return ChatMemory.from_defaults(
            session_id="s", chat_store=store, tokenizer_fn=str.split, token_limit=20, chat_history_token_ratio=0.5,
            token_flush_size=4,
        )  # fmt: skip

    first = chat(ours)
    for i in range(6):
        await first.aput(say(f"question number {i}"))
        await first.aput(say(f"answer number {i}", "assistant"))
    kept = texts(await first.aget())
    assert 0 < len(kept) < 12
    again = RLMChatStore.from_params(store_path)
    assert texts(await chat(again).aget()) == kept
    assert len(await chat(again).aget_all(status=None)) == 12
    await chat(again).areset()
    assert await first.aget() == []
    again.client.close()


# -- as a reference -------------------------------------------------------------------------------------------------


class Remembering(Workflow):
    @step
    async def start(self, ctx: Context, event: StartEvent) -> StopEvent:
        if (store := await ctx.store.get("chats", default=None)) is None:
            await ctx.store.set("chats", event.store)
            return StopEvent(result="stored")
        return StopEvent(result=texts(await store.get_messages("k")))


async def test_store_survives_in_the_context_of_a_workflow(ours: RLMChatStore) -> None:
    """B109"""
    await ours.add_message("k", say("a"))
    handler = Remembering().run(store=ours)
    assert await handler == "stored"
    for serializer in (JsonSerializer(), JsonSerializer(allowed_types=[RLMChatStore])):
        saved = json.loads(json.dumps(handler.ctx.to_dict(serializer=serializer)))
        context = Context.from_dict(Remembering(), saved, serializer=serializer)
        again = await context.store.get("chats")
        assert again is not ours
        assert await Remembering().run(ctx=context) == ["a"]
        again.client.close()


@pytest.mark.parametrize("kind", [RLMChatStore, RLMSyncChatStore])
def test_reference_opens_the_same_file(kind: type[Any], store_path: Path) -> None:
    """B109, B158"""
    with Memory.open(store_path, embedder=None, namespace="tenant") as memory:
        store = kind(memory)
        reference = store.to_dict()
        assert reference == {"class_name": kind.class_name(), "path": str(store_path), "namespace": "tenant"}
        assert kind.from_dict(reference, memory=memory).client is memory
        for again in (kind.from_dict(reference), pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
            assert again.client is not memory
            assert (again.client.location, again.client.namespace) == (str(store_path), "tenant")
            again.client.close()
        assert copy.copy(store).client is memory
        with (
            Memory.open(":memory:", embedder=None) as other,
            pytest.raises(InvalidInputError, match="not the store of this reference"),
        ):
            kind.from_dict(reference, memory=other)
    gone = store_path.with_name("gone.db")
    with pytest.raises(InvalidInputError, match="no store at"):
        kind.from_dict({**reference, "path": str(gone)})
    assert not gone.exists()
    with pytest.raises(InvalidInputError, match="no store at"):
        kind.from_dict({**reference, "path": "no file has a name so long" * 1000})


@pytest.mark.parametrize("kind", [RLMChatStore, RLMSyncChatStore])
def test_store_in_memory_has_no_reference(kind: type[Any]) -> None:
    store = kind.from_params(":memory:")
    for action in (store.to_dict, lambda: pickle.dumps(store), lambda: copy.deepcopy(store)):
        with pytest.raises(TypeError, match="would be lost"):
            action()
    store.client.close()


# -- the synchronous one --------------------------------------------------------------------------------------------

SYNC_SCENARIOS: dict[str, list[Step]] = {
    "nothing yet": [
        ("get_messages", ("k",), []),
        ("delete_messages", ("k",), None),
        ("delete_message", ("k", 0), None),
        ("delete_last_message", ("k",), None),
        ("get_keys", (), []),
    ],
    "added and set": [
        ("add_message", ("k", say("a")), None),
        ("add_message", ("k", say("b")), None),
        ("get_messages", ("k",), ["a", "b"]),
        ("set_messages", ("k", [say("c")]), None),
        ("get_messages", ("k",), ["c"]),
        ("get_keys", (), ["k"]),
    ],
    "deleted by place": [
        ABC,
        ("delete_message", ("k", 3), None),
        ("delete_message", ("k", 1), "b"),
        ("delete_message", ("k", 1), "c"),
        ("get_messages", ("k",), ["a"]),
        ("delete_message", ("k", -1), "a"),
    ],
    "the last and all": [
        ABC,
        ("delete_last_message", ("k",), "c"),
        ("delete_messages", ("k",), ["a", "b"]),
        ("get_messages", ("k",), []),
        ("delete_messages", ("k",), None),
    ],
}  # fmt: skip

ASYNC_NAMES = {"add_message": "async_add_message"}


@pytest.fixture(params=["theirs", "ours"])
def sync_store(request: pytest.FixtureRequest, store_path: Path) -> Iterator[BaseChatStore]:
    if request.param == "theirs":
        yield SimpleChatStore()
        return
    store = RLMSyncChatStore.from_params(store_path)
    yield store
    store.client.close()


@pytest.mark.parametrize("scenario", SYNC_SCENARIOS)
def test_sync_store_does_what_the_store_of_llamaindex_does(sync_store: BaseChatStore, scenario: str) -> None:
    """B081"""
    for name, arguments, expected in SYNC_SCENARIOS[scenario]:
        assert texts(getattr(sync_store, name)(*copy.deepcopy(arguments))) == expected, (name, arguments)


@pytest.mark.parametrize("scenario", SYNC_SCENARIOS)
async def test_sync_store_can_be_awaited(sync_store: BaseChatStore, scenario: str) -> None:
    for name, arguments, expected in SYNC_SCENARIOS[scenario]:
        method = getattr(sync_store, ASYNC_NAMES.get(name, f"a{name}"))
        assert texts(await method(*copy.deepcopy(arguments))) == expected, (name, arguments)


async def test_both_stores_show_the_same_history(ours: RLMChatStore) -> None:
    sync = RLMSyncChatStore(ours.client)
    buffer = ChatMemoryBuffer.from_defaults(chat_store=sync, chat_store_key="k", tokenizer_fn=str.split)
    buffer.put(say("a"))
    await ours.add_message("k", say("b", role=MessageRole.ASSISTANT))
    assert texts(buffer.get()) == texts(await ours.get_messages("k")) == ["a", "b"]
    await ours.archive_oldest_messages("k", 1)
    assert texts(sync.get_messages("k")) == ["b"]
    with pytest.raises(InvalidInputError):
        sync.set_messages("k", [say("fine"), say("x", thing=object())])
    assert texts(sync.get_messages("k")) == ["b"]
    assert texts(sync.delete_messages("k")) == ["a", "b"]
