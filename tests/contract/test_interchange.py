"""Export, import and backup: what comes back, and what a hostile file cannot do."""

from __future__ import annotations

import base64
import bz2
import codecs
import gzip
import json
import lzma
import threading
from datetime import UTC, datetime

import numpy as np
import pytest

from rlm_memory import Memory, Node
from rlm_memory.errors import EmbeddingMismatchError, InvalidInputError, StoreError
from support import WordEmbedder

HEADER = {"format": "rlm-memory nodes", "version": 1, "model": "words", "dimensions": 64}


def vector_text(*numbers: float) -> str:
    return base64.b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()


def fill(memory, clock) -> None:
    memory.add(
        [
            Node(text="a cat\0\r\n\u2028 设备", id="a\0b", type="entity", subtype="s", tier="longterm", confidence=0.1),
            Node(text="a dog", id="dog", provenance="\ud7ff", metadata={"n": 2**80, "deep": [{"x": None}], "": 1.5}),
            "pending",
            "",
        ],
        ids=["a\0b", "dog", "pending", "blank"],
        metadatas=None,
        compute_embedding=[True, True, False, True],
    )
    clock.advance(days=1)
    memory.pin("dog")
    memory.session("s").record_access(["dog", "a\0b"])
    memory.update("dog", confidence=1.0)


def test_a_round_trip_keeps_everything(open_memory, tmp_path, clock, embedder):
    memory = open_memory()
    fill(memory, clock)
    before = memory.list(include_archived=True)
    assert memory.export(tmp_path / "out.jsonl") == 4
    paid = len(embedder.asked)
    clock.advance(days=1)
    with Memory.open(tmp_path / "other.db", embedder=embedder, clock=clock) as other:
        assert other.import_(tmp_path / "out.jsonl") == 4
        assert other.list(include_archived=True) == before
        assert other.search("a dog", k=1, alpha=1)[0].semantic == pytest.approx(1.0, abs=1e-6)
        assert other.stats().pending == 2
        assert other.check()
        other.export(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert len(embedder.asked) == paid + 1


@pytest.mark.parametrize("storage", ["int8", "bit"])
def test_a_round_trip_of_rounded_vectors_changes_nothing(in_a_file, open_memory, tmp_path, storage):
    memory = open_memory(embedding_storage=storage)
    memory.add([f"text {i}" for i in range(20)])
    memory.export(tmp_path / "out.jsonl")
    with Memory.open(":memory:", embedder=WordEmbedder(), embedding_storage=storage) as other:
        other.import_(tmp_path / "out.jsonl")
        ours, theirs = (
            [(hit.text, round(hit.semantic, 5)) for hit in store.search("text 7", k=20, alpha=1)]
            for store in (memory, other)
        )
    assert ours == theirs


def test_what_is_known_is_replaced(open_memory, tmp_path, clock):
    memory = open_memory()
    fill(memory, clock)
    memory.export(tmp_path / "out.jsonl")
    memory.update("dog", text="changed", metadata={})
    memory.add("stays", ids=["stays"])
    memory.delete(["pending"])
    assert memory.import_(tmp_path / "out.jsonl") == 4
    assert memory.get("dog")[0].text == "a dog"
    assert memory.search("a dog", k=1, alpha=1)[0].semantic == pytest.approx(1.0, abs=1e-6)
    assert {node.id for node in memory.list()} == {"a\0b", "dog", "blank", "stays", "pending"}
    assert memory.check()


def test_the_last_of_equal_ids_in_a_file_wins(open_memory, tmp_path):
    lines = [{"id": "n", "text": f"text {i}"} for i in range(1200)]
    write(tmp_path / "in.jsonl", *lines)
    memory = open_memory()
    memory.import_(tmp_path / "in.jsonl")
    assert [node.text for node in memory.list()] == ["text 1199"]
    assert memory.check()


def test_an_empty_store_is_exported_and_imported(open_memory, tmp_path):
    memory = open_memory()
    assert memory.export(tmp_path / "out.jsonl") == 0
    assert memory.import_(tmp_path / "out.jsonl") == 0


def test_nothing_is_written_over(open_memory, tmp_path):
    memory = open_memory()
    for write_to in (memory.export, memory.backup):
        path = tmp_path / "there"
        path.write_text("precious")
        with pytest.raises(InvalidInputError, match="exists already"):
            write_to(path)
        assert path.read_text() == "precious"
        with pytest.raises((InvalidInputError, StoreError), match=r"cannot be made.*folder exists|Use pg_dump"):
            write_to(tmp_path / "no" / "such" / "folder")


# -- files that are not what they seem ------------------------------------------------------------------------------


def write(path, *lines, header=HEADER):
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in (header, *lines)]
    path.write_bytes(b"\n".join(encoded) + b"\n")


HOSTILE = {
    "not JSON": b"text",
    "a list": [1],
    "a number": 5,
    "null": None,
    "a blank line": b"",
    "a torn line": b'{"text": "a',
    "a raw NUL": b'{"text": "\x00"}',
    "NaN": b'{"text": "a", "confidence": NaN}',
    "Infinity": b'{"text": "a", "metadata": {"x": -Infinity}}',
    "a number beyond float": b'{"text": "a", "metadata": {"x": 1e999}}',
    "too many digits": b'{"text": "a", "access_count": ' + b"9" * 5000 + b"}",
    "too deep for the parser": b'{"text": "a", "metadata": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "too deep": {"text": "a", "metadata": json.loads('{"a":' * 300 + "1" + "}" * 300)},
    "no text": {"id": "n"},
    "text is a number": {"text": 5},
    "text is null": {"text": None},
    "a lone surrogate": b'{"text": "\\ud800"}',
    "not UTF-8": b'{"text": "\xff\xfe"}',
    "overlong UTF-8": b'{"text": "\xc0\x80"}',
    "id is a number": {"text": "a", "id": 5},
    "an unknown field": {"text": "a", "place": 5},
    "another namespace": {"text": "a", "namespace": "other"},
    "an unknown type": {"text": "a", "type": "nonsense"},
    "an unknown tier": {"text": "a", "tier": "nonsense"},
    "tier is a list": {"text": "a", "tier": ["task"]},
    "confidence beyond 1": {"text": "a", "confidence": 1.5},
    "confidence is a text": {"text": "a", "confidence": "0.5"},
    "metadata is a list": {"text": "a", "metadata": []},
    "metadata is null": {"text": "a", "metadata": None},
    "pinned is a number": {"text": "a", "pinned": 1},
    "a negative count": {"text": "a", "access_count": -1},
    "a count that overflows": {"text": "a", "access_count": 2**63},
    "a count that is a boolean": {"text": "a", "access_count": True},
    "a time without zone": {"text": "a", "created_at": "2026-01-01T00:00:00"},
    "a time that is none": {"text": "a", "updated_at": "yesterday"},
    "a time that is a number": {"text": "a", "last_accessed": 5},
    "a time before the first year": {"text": "a", "created_at": "0001-01-01T00:00:00+14:00"},
    "a time after the last year": {"text": "a", "created_at": "9999-12-31T23:59:59-14:00"},
    "a vector of another length": {"text": "a", "vector": vector_text(1.0)},
    "a zero vector": {"text": "a", "vector": vector_text(*[0.0] * 64)},
    "a vector with NaN": {"text": "a", "vector": vector_text(*[float("nan")] * 64)},
    "a vector that is no base64": {"text": "a", "vector": "***"},
    "a vector of broken numbers": {"text": "a", "vector": "AAAA"},
    "a vector that is a list": {"text": "a", "vector": [1.0] * 64},
    "a message without a key": {"message": {"content": "x"}},
    "a message that is a text": {"message": "x"},
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_line_that_cannot_be_read_leaves_nothing_and_is_named(memory, tmp_path, line):
    """B101 B108"""
    memory.add("here before", ids=["before"])
    write(tmp_path / "in.jsonl", {"text": "good", "id": "good"}, line, {"text": "good too"})
    with pytest.raises(InvalidInputError, match=r"^Line 3\b(?!.*Line 3)"):
        memory.import_(tmp_path / "in.jsonl")
    assert [node.id for node in memory.list()] == ["before"]
    assert memory.check()


HEADERS = {
    "empty": b"",
    "not JSON": b"text",
    "of something else": {"format": "other"},
    "a node": {"text": "a"},
    "a list": [HEADER],
    "without version": {"format": HEADER["format"]},
    "a newer version": {**HEADER, "version": 3},
    "a version that is a boolean": {**HEADER, "version": True},
    "no namespace": {**HEADER, "version": 2},
    "a namespace that is a number": {**HEADER, "version": 2, "namespace": 5},
    "dimensions of zero": {**HEADER, "dimensions": 0},
    "dimensions that are a text": {**HEADER, "dimensions": "64"},
    "dimensions that are a boolean": {**HEADER, "dimensions": True},
    "dimensions beyond all": {**HEADER, "dimensions": 10**9},
    "model is a number": {**HEADER, "model": 5},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS.keys())
def test_a_header_that_cannot_be_read_is_named(open_memory, tmp_path, header):
    memory = open_memory(embedder=None)
    write(tmp_path / "in.jsonl", {"text": "good"}, header=header)
    with pytest.raises(InvalidInputError, match=r"[Ll]ine 1|version"):
        memory.import_(tmp_path / "in.jsonl")
    assert memory.count() == 0
    assert memory.stats().dimensions is None


def test_an_empty_file_and_a_missing_one_are_told_apart(memory, tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(InvalidInputError, match="is empty; expected line 1"):
        memory.import_(tmp_path / "empty")
    with pytest.raises(InvalidInputError, match=r"Cannot read .*missing: No such file"):
        memory.import_(tmp_path / "missing")
    with pytest.raises(InvalidInputError, match="is a folder"):
        memory.import_(tmp_path)


OTHER_FILES = {
    "gzip": (gzip.compress, "gunzip -c"),
    "xz": (lzma.compress, "xz -dc"),
    "bzip2": (bz2.compress, "bunzip2 -c"),
    "a database": (lambda content: b"SQLite format 3\x00" + content, "rlm-memory copy"),
    "UTF-16": (lambda content: content.decode().encode("utf-16"), "export again"),
    "Latin-1": (lambda content: "é".encode("latin-1") + content, "line 1 is not UTF-8"),
}


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_a_file_of_another_kind_is_named_with_what_can_be_done(memory, tmp_path, kind):
    changed, advice = OTHER_FILES[kind]
    write(tmp_path / "in.jsonl", {"text": "a"})
    path = tmp_path / "changed"
    path.write_bytes(changed((tmp_path / "in.jsonl").read_bytes()))
    with pytest.raises(InvalidInputError, match=f"^{path} .*{advice}"):
        memory.import_(path)


@pytest.fixture
def both_versions(open_memory, tmp_path):
    """A file written by hand, and an export; each has the node `n`."""
    other = open_memory(namespace="other")
    other.add("text", ids=["n"])
    other.export(tmp_path / "2.jsonl")
    write(tmp_path / "1.jsonl", {"text": "text", "id": "n"})
    return [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]


@pytest.mark.parametrize("end", [b"\n", b"\n\r\n \t\n", b"\r\n\n", b"  "])
def test_a_byte_order_mark_and_blank_lines_at_the_end_are_no_lines(memory, both_versions, end):
    for path in both_versions:
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes() + end)
        assert memory.import_(path) == 1


def test_a_blank_line_in_the_middle_is_named(memory, both_versions):
    for path in both_versions:
        first, rest = path.read_bytes().split(b"\n", 1)
        path.write_bytes(first + b"\n\n\n" + rest)
        with pytest.raises(InvalidInputError, match=r"^Line 2 is blank; only the end of the file may be\.$"):
            memory.import_(path)


def test_line_ends_of_windows_are_accepted_by_hand_and_told_where_a_hash_says_what_was_written(memory, both_versions):
    for path in both_versions:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert memory.import_(both_versions[0]) == 1
    with pytest.raises(InvalidInputError, match=r"lines end as those of Windows"):
        memory.import_(both_versions[1])


def test_vectors_of_another_model_are_refused(open_memory, tmp_path):
    """B022"""
    memory = open_memory()
    memory.add("text")
    for change in ({"model": "other"}, {"dimensions": 32}):
        write(tmp_path / "in.jsonl", {"text": "a"}, header={**HEADER, **change})
        with pytest.raises(EmbeddingMismatchError, match=r"'words' \(64 dimensions\).*reembed"):
            memory.import_(tmp_path / "in.jsonl")
    assert memory.count() == 1


def test_a_vector_needs_a_header_that_tells_its_length(open_memory, tmp_path):
    memory = open_memory(embedder=None)
    write(tmp_path / "in.jsonl", {"text": "a", "vector": vector_text(1.0, 2.0)}, header={**HEADER, "dimensions": None})
    with pytest.raises(InvalidInputError, match="Line 2"):
        memory.import_(tmp_path / "in.jsonl")


def test_times_of_any_zone_come_back_in_utc(memory, tmp_path):
    """B112"""
    write(tmp_path / "in.jsonl", {"id": "n", "text": "a", "created_at": "2026-01-01T09:00:00.123456+09:00"})
    memory.import_(tmp_path / "in.jsonl")
    assert memory.get("n")[0].created_at == datetime(2026, 1, 1, 0, 0, 0, 123000, tzinfo=UTC)


# -- backup ---------------------------------------------------------------------------------------------------------


def test_a_backup_is_a_store(in_a_file, open_memory, tmp_path, clock, embedder):
    memory = open_memory()
    fill(memory, clock)
    memory.backup(tmp_path / "backup.db")
    memory.delete(["dog"])
    assert [path.name for path in tmp_path.glob("backup.db*")] == ["backup.db"]
    with Memory.open(tmp_path / "backup.db", embedder=embedder, clock=clock) as backup:
        assert backup.search("a dog", k=1, alpha=1)[0].id == "dog"
        assert backup.check()
        backup.add("the copy can be written")
    assert memory.get("dog") == []


def test_a_backup_under_load_is_one_state(in_a_file, open_memory, tmp_path):
    memory = open_memory(embedder=WordEmbedder(16))
    texts = [f"text {i}" for i in range(40)]
    stop = threading.Event()

    def write_batches():
        batch = 0
        while not stop.is_set():
            memory.add(texts, ids=[f"{batch}-{i}" for i in range(40)])
            if batch % 3 == 2:
                memory.delete([f"{batch}-{i}" for i in range(40)])
            batch += 1

    writer = threading.Thread(target=write_batches)
    writer.start()
    try:
        for number in range(5):
            memory.backup(tmp_path / f"backup-{number}.db")
    finally:
        stop.set()
        writer.join()
    for number in range(5):
        with Memory.open(tmp_path / f"backup-{number}.db", embedder=WordEmbedder(16)) as backup:
            assert backup.count() % 40 == 0
            assert backup.check()
    assert not list(tmp_path.glob("*.partial"))
