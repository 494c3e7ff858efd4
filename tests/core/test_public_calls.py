"""Every public method of the core: what hostile texts do to it, and that it sees nothing of another namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from public_calls import Argument, calls_of
from rlm_memory import Memory, RLMError
from rlm_memory.records import Encoded, ThreadCheckpoint, ThreadWrite
from support import WordEmbedder

MARK = "zirconium"
"""A word of everything that the other tenant keeps."""

HOSTILE = {
    "quotes": """'; DROP TABLE nodes; -- " ` ] ) ''""",
    "NUL": "a\0b",
    "wildcards": "%_*?[a-z]^",
    "right to left": "\u202eabc\u202c\u200f\ufeff",
    "a million letters": "x" * 1_000_000,
    "FTS5": 'text:a NEAR(b c, 2) AND "d" OR NOT e* ^f {text}: + - ( ',
    "SQL": "1 OR 1=1) UNION SELECT id, text FROM nodes WHERE ('1'='1",
    "template": "{where} {tokenizer} %s %(id)s ?1 :id $id",
    "JSON path": '$."a"[0].b',
    "lone surrogate": "\ud800",
    "nothing": "",
}


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
    "reembed", "compact",  # about the whole file, and tried elsewhere
    "plot_tiers",
})  # fmt: skip
FULL_FILE = frozenset({"backup", "check"})


def things(memory: Memory, text: str) -> Iterator[Any]:
    yield memory
    yield memory.conversations
    for make in (memory.session, memory.key_values, memory.threads):
        try:
            yield make(text)
        except RLMError:
            yield make("any")


def count(path: Path) -> tuple[Any, ...]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    tables = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    connection.close()
    return tuple(tables)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_are_taken_as_texts_or_refused_by_every_method(tmp_path: Path, text: str) -> None:
    """B001 B003 B029 B033 B036"""
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=WordEmbedder(16), namespace="other") as other:
        other.add("kept", ids=["kept"])
        before = count(path)
        called = 0
        with Memory.open(path, embedder=WordEmbedder(16)) as memory:
            memory.add("a text", ids=["a"])
            for thing in things(memory, text):
                for name, call in calls_of(thing, text, arguments(tmp_path), without=NOT_CALLED):
                    called += 1
                    try:
                        call()
                    except (RLMError, FileNotFoundError) as error:  # of import_: there is no such file
                        str(error).encode("utf-8", "backslashreplace")
                    except Exception as error:
                        raise AssertionError(f"{type(thing).__name__}.{name}: untyped {error!r:.300}") from error
            assert list(memory.check()) == []
        assert called > 80
        assert other.get("kept")[0].text == "kept"
        assert other.count() == 1
    assert {name for name, _ in before} <= {name for name, _ in count(path)}


def fill(memory: Memory) -> None:
    memory.add(f"{MARK} text", ids=[MARK], metadatas=[{MARK: MARK, "n": 1}], provenance=MARK)
    memory.add("a hidden one", ids=["shared"], metadatas=[{"n": 1}], provenance=MARK)
    with memory.session(MARK) as session:
        session.record_access([MARK, "shared"], run_id=MARK)
    memory.promote(MARK, "longterm", reason=MARK)
    memory.conversations.append(MARK, [{MARK: MARK}])
    memory.key_values(MARK).put({MARK: {MARK: MARK}})
    memory.threads(MARK).put(threads_checkpoint(MARK))


def kept(memory: Memory, file: Path) -> tuple[Any, ...]:
    memory.export(file)
    threads = memory.threads(MARK).get(MARK, MARK, MARK)
    return (
        file.read_text().splitlines()[1:], memory.conversations.list(MARK), memory.key_values(MARK).get(MARK), threads,
        list(memory.promotion_log()), memory.accesses(MARK), memory.sessions(),
    )  # fmt: skip


def test_no_method_shows_or_changes_what_another_namespace_keeps(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with (
        Memory.open(path, embedder=WordEmbedder(16), namespace="theirs") as theirs,
        Memory.open(path, embedder=WordEmbedder(16), namespace="mine") as mine,
    ):
        fill(theirs)
        before = kept(theirs, tmp_path / "before.jsonl")
        # First what reads with the words of the other tenant, while there is nothing here; then what writes too.
        writes = {"add", "append", "replace", "put", "put_writes", "import_"}
        for without in (NOT_CALLED | FULL_FILE | writes, NOT_CALLED | FULL_FILE):
            for thing in things(mine, MARK):
                for name, call in calls_of(thing, MARK, arguments(tmp_path), without=without):
                    try:
                        result = call()
                    except (RLMError, FileNotFoundError):
                        continue
                    if writes & without and name not in ("session", "key_values", "threads"):  # they tell their names
                        assert MARK not in repr(result).replace(repr(mine), ""), name
            assert mine.get("shared") == []
        assert kept(theirs, tmp_path / "after.jsonl") == before
        assert theirs.check()


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
