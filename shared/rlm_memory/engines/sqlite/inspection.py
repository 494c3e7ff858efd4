"""What a store file holds and costs, and whether it is sound."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Final

import apsw
import numpy as np

from rlm_memory.engines.rows import entry_of
from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import row_of, rows_of
from rlm_memory.engines.sqlite.filters import SQLValue, field_rows
from rlm_memory.engines.sqlite.keys import length_of, text_hash, vector_key
from rlm_memory.engines.sqlite.threads import thread_problems
from rlm_memory.engines.sqlite.vector_chunks import packed_members
from rlm_memory.engines.sqlite.vectors import VectorFormat, packed_signs, read_layout, read_vectors
from rlm_memory.keywords import segment
from rlm_memory.promotion import chain_start, first_broken
from rlm_memory.records import NODE_TYPES, TIERS, Problem, Stats

_BATCH: Final = 1000
_HISTORIES: Final = [
    ("accesses", "node"), ("uses", "node"), ("outcomes", "node"), ("edges", "source"), ("edges", "target"),
    ("forgotten_accesses", "node"), ("unweighed_nodes", "node"),
]  # fmt: skip


def measure(connection: apsw.Connection, location: str, namespace: str, number: int | None) -> Stats:
    """Return the counts of one namespace and the sizes of the whole file."""
    meta = dict(rows_of(connection, statements.SELECT_META))
    by_tier = dict(connection.execute(statements.COUNT_BY_TIER, (number,)))
    by_type = dict(connection.execute(statements.COUNT_BY_TYPE, (number,)))
    (with_vector,) = row_of(connection, statements.COUNT_WITH_VECTOR, (number,))
    nodes = sum(by_tier.values())
    page = int(connection.pragma("page_size"))
    sizes: dict[str, int] = dict(connection.execute(statements.SELECT_SIZES))
    keyword_bytes = sum(size for name, size in sizes.items() if name.startswith("nodes_fts"))
    vector_bytes = sum(size for name, size in sizes.items() if _belongs_to_vectors(name))
    (text_bytes,) = row_of(connection, statements.SUM_TEXT_BYTES)
    file_bytes = page * int(connection.pragma("page_count"))
    layout = read_layout(connection)
    unused = _unused_vector_bytes(connection, layout) if layout else 0
    vector_bytes -= unused
    free_bytes = page * int(connection.pragma("freelist_count")) + unused
    return Stats(
        location=location,
        namespace=namespace,
        nodes=nodes,
        by_tier={tier: by_tier.get(tier, 0) for tier in TIERS},
        by_type={type: by_type.get(type, 0) for type in NODE_TYPES},
        with_vector=with_vector,
        pending=nodes - with_vector,
        embedding_model=meta.get("embedding_model"),
        dimensions=int(meta["dimensions"]) if "dimensions" in meta else None,
        embedding_storage=meta["embedding_storage"],
        tokenizer=meta["tokenizer"],
        text_bytes=text_bytes,
        keyword_bytes=keyword_bytes,
        vector_bytes=vector_bytes,
        other_bytes=file_bytes - text_bytes - keyword_bytes - vector_bytes - free_bytes,
        free_bytes=free_bytes,
        file_bytes=file_bytes,
    )


def _belongs_to_vectors(name: str) -> bool:
    return name in {"vector_signs", "nodes_by_place"} or "node_embeddings" in name


def _unused_vector_bytes(connection: apsw.Connection, layout: VectorFormat) -> int:
    """Return the room of the vectors that are gone: vec0 keeps it until the whole chunk is empty."""
    chunks, vectors = row_of(
        connection, "SELECT (SELECT count(*) FROM node_embeddings_chunks), count(*) FROM node_embeddings_rowids"
    )
    needed = -(-vectors // layout.chunk)
    signs = -(-layout.dimensions // 64) * 8 if layout.has_signs else 0
    return int(chunks - needed) * layout.chunk * (layout.width + signs)


def find_problems(connection: apsw.Connection) -> Iterator[Problem]:
    """Yield what is wrong with the file, from its pages to the last derived number.

    Args:
        connection: A connection that has vec0.
    """
    try:
        yield from _problems(connection)
    except apsw.BusyError:
        raise
    except (apsw.Error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # In a damaged page, any value can be another one than the schema lets in.
        yield Problem("file", f"it cannot be read to its end: {type(error).__name__}: {error}")


def _problems(connection: apsw.Connection) -> Iterator[Problem]:
    with contextlib.suppress(apsw.CorruptError, apsw.SQLError):  # of which the next statement tells
        # integrity_check does not ask FTS5 whether others have written since this connection last read its index, and
        # took theirs for damage; any cursor asks.
        row_of(connection, "SELECT count(*) FROM (SELECT 1 FROM nodes_fts LIMIT 1)")
    broken = [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    yield from (Problem("file", what) for what in broken)
    for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield Problem(table, f"row {rowid} refers to a row of {parent} that is not there")
    yield from _keyword_problems(connection)
    yield from _node_problems(connection)
    yield from _sum_problems(connection)
    yield from _log_problems(connection)
    yield from thread_problems(connection)
    yield from _message_problems(connection)
    layout = read_layout(connection)
    if layout is not None:
        yield from _vector_problems(connection, layout)


def _keyword_problems(connection: apsw.Connection) -> Iterator[Problem]:
    """Yield whether the keyword index is not that of the texts, unless the file may not be written by anybody here.

    FTS5 compares the two by a command that is an INSERT, although it changes nothing.
    """
    reading_alone = connection.pragma("query_only")
    connection.pragma("query_only", False)
    try:
        connection.execute("INSERT INTO nodes_fts (nodes_fts, rank) VALUES ('integrity-check', 1)")
    except apsw.ReadOnlyError:
        return
    except apsw.CorruptError as error:
        yield Problem("nodes_fts", f"the keyword index does not match the texts: {error}")
    finally:
        connection.pragma("query_only", reading_alone)


def _node_problems(connection: apsw.Connection) -> Iterator[Problem]:
    """Yield nodes whose derived columns or filter rows are not what their text and metadata say."""
    fields: dict[int, set[tuple[str, SQLValue]]] = {}
    for key, value, node in connection.execute("SELECT key, value, node FROM node_fields"):
        fields.setdefault(node, set()).add((key, value))
    for node, id, metadata, text, keywords, hashed in connection.execute(
        "SELECT node, id, metadata, text, keywords, text_hash FROM nodes"
    ):
        where = f"node {id!r}"
        if keywords != segment(text):
            yield Problem(where, "its keywords are not those of its text")
        if hashed != text_hash(text):
            yield Problem(where, "its text is not the one it was stored with")
        try:
            expected = set(field_rows(json.loads(metadata)))
        except ValueError as error:
            yield Problem(where, f"its metadata is not JSON: {error}")
            continue
        if fields.pop(node, set()) != expected:
            yield Problem(where, "its rows for filters do not match its metadata")
    for node in fields:
        yield Problem("node_fields", f"there are rows for node number {node}, which is not there")
    for table, column in _HISTORIES:
        for (node,) in connection.execute(
            f"SELECT DISTINCT {column} FROM {table} WHERE {column} NOT IN (SELECT node FROM nodes)"
        ):
            yield Problem(table, f"there are rows for node number {node}, which is not there")


def _sum_problems(connection: apsw.Connection) -> Iterator[Problem]:
    """Yield namespaces whose counts are not those of their nodes."""
    counted: dict[int, tuple[int, int, int]] = {}
    for node, number, size in connection.execute(
        "SELECT n.node, n.namespace, d.sz FROM nodes n LEFT JOIN nodes_fts_docsize d ON d.id = n.node"
    ):
        nodes, words, last = counted.get(number, (0, 0, 0))
        counted[number] = nodes + 1, words + length_of(size or b""), max(last, node)
    for number, name, last_node, nodes, words in connection.execute(
        "SELECT number, name, last_node, nodes, words FROM namespaces"
    ):
        true_nodes, true_words, true_last = counted.get(number, (0, 0, 0))
        if (nodes, words) != (true_nodes, true_words):
            yield Problem(
                f"namespace {name!r}",
                f"it counts {nodes} nodes and {words} words, there are {true_nodes} and {true_words}",
            )
        if last_node < true_last:
            yield Problem(f"namespace {name!r}", "it would give a number to a new node that another one has")


def _log_problems(connection: apsw.Connection) -> Iterator[Problem]:
    """Yield namespaces whose promotion log was changed or cut, and nodes whose tier is not the one it leads to."""
    for number, name, head in rows_of(connection, "SELECT number, name, log_head FROM namespaces"):
        where, start, last = f"promotion log of namespace {name!r}", chain_start(name), None
        tiers: dict[str, str] = {}
        for row in connection.execute(statements.SELECT_LOG, (number, 0, None, -1)):
            try:
                entry = entry_of(row)
            except (ValueError, TypeError, OverflowError) as error:
                yield Problem(where, f"entry {row[0]} was changed: {error}")
                break
            if (broken := first_broken([entry], previous_hash=last or start)) is not None:
                yield Problem(where, f"entry {broken} was changed, or one before it is missing")
                break
            last = entry.hash
            if entry.decision.moved:
                tiers[entry.decision.node_id] = entry.decision.to_tier
        else:
            if last != head:
                yield Problem(where, "its last entries are missing")
            for id, tier in connection.execute("SELECT id, tier FROM nodes WHERE namespace = ?", (number,)):
                if tiers.get(id, "task") != tier:
                    yield Problem(f"node {id!r}", f"it is in {tier}, the log leads to {tiers.get(id, 'task')}")


def _message_problems(connection: apsw.Connection) -> Iterator[Problem]:
    """Yield messages of conversations that cannot be read."""
    for message, key, content in connection.execute("SELECT message, key, content FROM messages"):
        try:
            json.loads(content)
        except ValueError as error:
            yield Problem(f"message {message} of conversation {key!r}", f"it is not JSON: {error}")


def _vector_problems(connection: apsw.Connection, layout: VectorFormat) -> Iterator[Problem]:
    """Yield vectors without a node, nodes whose vector is elsewhere, and vectors or signs that cannot be right."""
    stored: dict[str, int] = {}
    rowids: dict[int, int] = {}
    for rowid, key, chunk, offset in connection.execute(statements.SELECT_VECTOR_KEYS):
        stored[key] = place = chunk * layout.chunk + offset
        rowids[place] = rowid
    for chunk, validity, members in connection.execute(statements.SELECT_ALL_MEMBERS):
        first = chunk * layout.chunk
        slots = np.array([rowids.get(place, 0) for place in range(first, first + layout.chunk)], dtype=np.int64)
        if (validity, members) != packed_members(slots != 0, slots):
            yield Problem("node_embeddings", f"chunk {chunk} names other vectors than those that lie in it")
    sound: list[tuple[str, int]] = []
    for _, namespace, id, place in connection.execute(statements.SELECT_OWNERS):
        found = stored.pop(vector_key(namespace, id), None)
        if found == place:
            sound.append((id, place))
        else:
            yield Problem(f"node {id!r}", f"its vector should be at place {place}, but is at {found}")
    for key in stored:
        yield Problem("node_embeddings", f"there is a vector for {key!r}, which has no node")
    signs = dict(connection.execute("SELECT chunk, bits FROM vector_signs"))
    for chunk in signs.keys() - {
        chunk for (chunk,) in connection.execute("SELECT chunk_id FROM node_embeddings_chunks")
    }:
        yield Problem("vector_signs", f"there are signs for chunk {chunk}, which is not there")
    for start in range(0, len(sound), _BATCH):
        batch = sound[start : start + _BATCH]
        vectors = read_vectors(connection, layout, [place for _, place in batch])
        with np.errstate(all="ignore"):  # what is damaged may hold any number
            lengths = np.linalg.norm(vectors, axis=1)
        for (id, place), vector, length in zip(batch, vectors, lengths, strict=True):
            if not abs(length - 1.0) < 0.01:
                yield Problem(f"node {id!r}", f"its vector has length {length:g}, expected 1")
            elif layout.has_signs:
                expected = packed_signs(vector[np.newaxis]).tobytes()
                chunk, offset = divmod(place, layout.chunk)
                kept = signs.get(chunk, b"")[offset * len(expected) : (offset + 1) * len(expected)]
                if kept != expected:
                    yield Problem(f"node {id!r}", "the signs of its vector are not those of the vector")
