"""Every public method of the core: what hostile texts do to it, and that it sees nothing of another namespace."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile_calls import Subject, call_everything, results_of
from hostile_texts import HOSTILE, MARK, rows_of
from public_calls import Argument
from rlm_memory import AsyncConversations, AsyncMemory, Memory, RLMError
from rlm_memory.aio import AsyncThreads
from rlm_memory.records import Encoded, ThreadCheckpoint, ThreadWrite
from support import WordEmbedder


def threads_checkpoint(text: str) -> ThreadCheckpoint:
    return ThreadCheckpoint(
        thread_id=text, id=text, parent_id=text, graph=text, head=Encoded(text, text.encode("utf-8", "replace")),
        metadata={text: text, "run_id": text}, values={text: Encoded(text, b"1")}, versions={text: 1},
    )  # fmt: skip


def arguments(folder: Path) -> dict[str, Argument]:
    """What each argument could be, of one text, by its name."""
    files = iter(range(1_000_000))
    texts = ["texts", "id", "query", "provenance", "reason", "session", "key", "collection", "kind", "thread_id",
             "graph", "source_id", "target_id", "checkpoint_id", "session_id", "after", "run_id", "before"]  # fmt: skip
    lists = ["ids", "keys", "run_ids", "thread_ids", "tags"]
    return {
        **dict.fromkeys(texts, lambda text: text),
        **dict.fromkeys(lists, lambda text: [text]),
        "where": lambda text: {text: text},
        "metadata": lambda text: {text: text},
        "metadatas": lambda text: [{text: text}],
        "values": lambda text: {text: {text: text}},
        "contents": lambda text: [{text: text}],
        "checkpoint": threads_checkpoint,
        "writes": lambda text: [
            ThreadWrite(task_id=text, place=0, channel=text, task_path=text, value=Encoded(text, b"1"))
        ],
        "path": lambda text: folder / f"file-{next(files)}",
        "type": lambda text: text,
        "tier": lambda text: text,
        "tiers": lambda text: [text],
        "types": lambda text: [text],
        "status": lambda text: text,
        "to_tier": lambda text: "session",
        "confidence": lambda text: 0.5,
        "n": lambda text: 1,
        "number": lambda text: 1,
        "limit": lambda text: 10,
        "success": lambda text: True,
        "found": lambda text: [],
        "embedder": lambda text: None,
        "kept": lambda text: {text: text},
        "keep": lambda text: 1,
        "wanted": lambda text: None,
    }


NOT_CALLED = frozenset({
    "open", "close",  # what opens and ends it all
    "embed", "embedder_for_use", "adding", "searching", "updating", "embedding_pending",  # the steps of a call
    "after_fork_in_child",
    "copy_to",  # to another store
    "reembed", "compact",  # about the whole file, and tried elsewhere
    "plot_tiers",
})  # fmt: skip
FULL_FILE = frozenset({"backup", "check"})


def things(memory: Memory, text: str) -> Iterator[Any]:
    """Yield everything of the core that has public methods, sync and async."""
    awaited = AsyncMemory(memory)
    yield from (memory, memory.conversations, awaited, awaited.conversations)
    for make in (memory.session, memory.key_values, memory.threads, awaited.key_values, awaited.threads):
        try:
            yield make(text)
        except RLMError:
            yield make("any")


def subjects(memory: Memory, text: str, folder: Path, *, without: frozenset[str] = NOT_CALLED) -> list[Subject]:
    given = arguments(folder)
    given |= dict.fromkeys(("end_session.session", "outcome.session"), lambda text: memory.session("s"))
    listed = []
    for thing in things(memory, text):
        plain = {
            AsyncMemory: memory, AsyncConversations: memory.conversations, AsyncThreads: memory.threads("any"),
        }.get(type(thing))  # fmt: skip
        options = {} if plain is None else options_of(thing, plain)
        # the last is what import_ says of a file that is not there
        listed.append(Subject(thing, given, options, without, refusals=(FileNotFoundError,)))
    return listed


def options_of(awaited: Any, plain: Any) -> dict[str, tuple[str, ...]]:
    """Return what async methods take as keywords: what the sync ones do."""
    names = [name for name, _ in inspect.getmembers(type(awaited), callable) if hasattr(plain, name)]
    return {
        name: tuple(set(inspect.signature(getattr(plain, name)).parameters) - set(parameters_of(awaited, name)))
        for name in names
        if not name.startswith("_") and "options" in parameters_of(awaited, name)
    }


def parameters_of(thing: Any, name: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(thing, name)).parameters)


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where a store can be."""
    return tmp_path / "memory.db" if request.param == "file" else str(request.getfixturevalue("postgres_url"))


ALONE = ("lone surrogate", "a million letters", "nothing")
ON_SERVER = {
    **{name: HOSTILE[name] for name in ALONE},
    "all others in one": " ".join(text for name, text in HOSTILE.items() if name not in ALONE),
}
"""Each call takes several times as long there as in a file."""


@pytest.mark.parametrize(
    ("place", "text"),
    [
        *(pytest.param("file", text, id=f"file-{name}") for name, text in HOSTILE.items()),
        *(pytest.param("server", text, id=f"server-{name}") for name, text in ON_SERVER.items()),
    ],
    indirect=["place"],
)
async def test_hostile_texts_are_taken_as_texts_or_refused_by_every_method(
    place: Path | str, tmp_path: Path, text: str
) -> None:
    """B001 B003 B029 B033 B036"""
    with (
        Memory.open(place, embedder=WordEmbedder(16), namespace="other") as other,
        Memory.open(place, embedder=WordEmbedder(16)) as memory,
    ):
        fill(other)
        before = rows_of(place, "other")
        memory.add("a text", ids=["a"])
        assert len(await call_everything(place, "default", subjects(memory, text, tmp_path), text)) > 60
        assert list(memory.check()) == []
        assert rows_of(place, "other") == before


def fill(memory: Memory) -> None:
    memory.add(f"{MARK} text", ids=[MARK], metadatas=[{MARK: MARK, "n": 1}], provenance=MARK)
    memory.add("a hidden one", ids=["shared"], metadatas=[{"n": 1}], provenance=MARK)
    with memory.session(MARK) as session:
        session.record_access([MARK, "shared"], run_id=MARK)
    memory.promote(MARK, "longterm", reason=MARK)
    memory.conversations.append(MARK, [{MARK: MARK}])
    memory.key_values(MARK).put({MARK: {MARK: MARK}})
    memory.threads(MARK).put(threads_checkpoint(MARK))
    memory.sessions()


def exported(memory: Memory, file: Path) -> list[str]:
    memory.export(file)
    return file.read_text().splitlines()


WRITES = frozenset({"add", "append", "replace", "put", "put_writes", "import_", "delete", "clear", "delete_runs"})
ECHOES = frozenset({"session", "key_values", "threads"})  # they tell their names


@pytest.mark.parametrize("empty", [True, False], ids=["an empty one", "one with the same ids"])
async def test_no_method_shows_or_changes_what_another_namespace_keeps(
    place: Path | str, tmp_path: Path, empty: bool
) -> None:
    with (
        Memory.open(place, embedder=WordEmbedder(16), namespace="theirs") as theirs,
        Memory.open(place, embedder=WordEmbedder(16), namespace="mine") as mine,
    ):
        fill(theirs)
        before = rows_of(place, "theirs"), exported(theirs, tmp_path / "before.jsonl")
        if empty:
            shown = await results_of(reading(mine, tmp_path), MARK)
            assert [name for name in shown if MARK in shown[name].replace(repr(mine), "")] == []
            assert mine.get("shared") == []
        else:
            fill(mine)
            called = subjects(mine, MARK, tmp_path, without=NOT_CALLED | FULL_FILE)
            assert await call_everything(place, "mine", called, MARK)
        assert (rows_of(place, "theirs"), exported(theirs, tmp_path / "after.jsonl")) == before
        assert theirs.check()


async def test_the_methods_show_to_the_namespace_itself_what_it_keeps(tmp_path: Path) -> None:
    """Or the test above would see nothing, whatever they did."""
    with Memory.open(tmp_path / "memory.db", embedder=WordEmbedder(16)) as memory:
        fill(memory)
        shown = {name for name, text in (await results_of(reading(memory, tmp_path), MARK)).items() if MARK in text}
        assert shown > {
            "Memory.get", "Memory.list", "Memory.search(query)", "Memory.promotion_log", "Memory.accesses",
            "Memory.sessions",
            "AsyncMemory.search(query)", "AsyncMemory.list(where)", "Conversations.list", "AsyncConversations.keys",
            "KeyValues.get", "Threads.get(graph)", "Threads.list",
        }  # fmt: skip


def reading(memory: Memory, folder: Path) -> list[Subject]:
    return subjects(memory, MARK, folder, without=NOT_CALLED | FULL_FILE | WRITES | ECHOES)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("multi-agent", "agent"), ("a-b", "ab"), ("a'b", "ab"), ("memory:safe", "safe"), ('say "hi', "hi"),
        ("(python", "python"), ("AND", "and"), ("python 3.12.1", "version"), ("38.101", "number"),
        ("-38.101", "number"), ("01. Intro.mp3", "intro"), ('"--error-on-warnings"', "flag"),
    ],
)  # fmt: skip
def test_syntax_of_a_query_language_is_words(query: str, found: str) -> None:
    """B001 B003 B029 B033 B036"""
    texts = {
        "agent": "multi agent systems", "ab": "a b", "safe": "memory safe", "hi": "say hi", "python": "python snake",
        "and": "this AND that", "version": "python 3.12.1", "number": "standard 38.101", "intro": "01. Intro.mp3",
        "flag": "run with --error-on-warnings",
    }  # fmt: skip
    with Memory.open(":memory:", embedder=None, stop_words=None) as memory:
        memory.add(list(texts.values()), ids=list(texts))
        assert memory.search(query, k=1)[0].id == found
        assert memory.search(query, k=1)[0].keyword
