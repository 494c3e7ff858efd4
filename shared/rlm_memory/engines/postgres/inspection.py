"""What a store on a server holds and costs, and whether a namespace of it is sound."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import psycopg

from rlm_memory.engines.postgres import statements
from rlm_memory.engines.postgres.connection import Connection, Database
from rlm_memory.engines.postgres.filters import encoded_rows
from rlm_memory.engines.postgres.threads import thread_problems
from rlm_memory.engines.postgres.values import key_of, row_of, rows_of, vectors_of
from rlm_memory.engines.postgres.words import COUNT
from rlm_memory.engines.rows import entry_of
from rlm_memory.engines.texts import Tokenizer, text_hash
from rlm_memory.promotion import chain_start, first_broken
from rlm_memory.records import NODE_TYPES, TIERS, Problem, Stats

_BATCH: Final = 500
_HISTORIES: Final = [
    ("rlm_accesses", "node"), ("rlm_uses", "node"), ("rlm_outcomes", "node"), ("rlm_edges", "source"),
    ("rlm_edges", "target"), ("rlm_node_fields", "node"), ("rlm_node_terms", "node"),
    ("rlm_forgotten_accesses", "node"), ("rlm_unweighed_nodes", "node"),
]  # fmt: skip
_KEYWORDS: Final = ("rlm_node_terms", "rlm_terms")


def measure(connection: Connection, location: str, database: Database) -> Stats:
    """Return the counts of one namespace and the sizes of the whole store."""
    meta = dict(rows_of(connection, statements.SELECT_META))
    by_tier: Counter[str] = Counter()
    by_type: Counter[str] = Counter()
    with_vector = 0
    for tier, type, count, embedded in rows_of(connection, statements.COUNT_KINDS, (database.namespace,)):
        by_tier[tier] += count
        by_type[type] += count
        with_vector += embedded
    sizes: dict[str, int] = dict(rows_of(connection, statements.SELECT_SIZES))
    keyword_bytes = sum(size for name, size in sizes.items() if name.startswith(_KEYWORDS))
    vector_bytes = sum(size for name, size in sizes.items() if name.startswith("rlm_node_vectors"))
    text_bytes = int(row_of(connection, statements.SUM_TEXT_BYTES)[0])
    file_bytes = sum(sizes.values())
    nodes = by_tier.total()
    return Stats(
        location=location,
        namespace=database.name,
        nodes=nodes,
        by_tier={tier: by_tier[tier] for tier in TIERS},
        by_type={type: by_type[type] for type in NODE_TYPES},
        with_vector=with_vector,
        pending=nodes - with_vector,
        embedding_model=meta.get("embedding_model"),
        dimensions=int(meta["dimensions"]) if "dimensions" in meta else None,
        embedding_storage=meta["embedding_storage"],
        tokenizer=meta["tokenizer"],
        text_bytes=text_bytes,
        keyword_bytes=keyword_bytes,
        vector_bytes=vector_bytes,
        other_bytes=max(0, file_bytes - text_bytes - keyword_bytes - vector_bytes),
        free_bytes=0,
        file_bytes=file_bytes,
    )


def find_problems(connection: Connection, database: Database, tokenizer: Tokenizer) -> Iterator[Problem]:
    """Yield what is wrong with a namespace, in one snapshot; other namespaces are those of others to check."""
    try:
        yield from _problems(connection, database, tokenizer)
    except psycopg.OperationalError:
        raise
    except (psycopg.Error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        yield Problem("store", f"it cannot be read to its end: {type(error).__name__}: {error}")


def _problems(connection: Connection, database: Database, tokenizer: Tokenizer) -> Iterator[Problem]:
    yield from _node_problems(connection, database, tokenizer)
    yield from _log_problems(connection, database)
    yield from thread_problems(connection, database.namespace)
    yield from _message_problems(connection, database)


def _pages(connection: Connection, database: Database, columns: str) -> Iterator[Any]:
    """Yield rows of the nodes of the namespace, whose first column is the number, a page at a time."""
    after = 0
    select = f"SELECT {columns} FROM rlm_nodes WHERE namespace = %s AND node > %s ORDER BY node LIMIT %s"
    while rows := rows_of(connection, select, (database.namespace, after, _BATCH)):
        yield rows
        after = rows[-1][0]


def _node_problems(connection: Connection, database: Database, tokenizer: Tokenizer) -> Iterator[Problem]:
    """Yield nodes whose derived rows are not what their text and metadata say, and sums that are not theirs."""
    namespace = database.namespace
    count, length, last = 0, 0, 0
    texts_with: Counter[int] = Counter()
    columns = "node, id, id_key, metadata, text, text_hash, embedded"
    has_vectors = "dimensions" in dict(rows_of(connection, statements.SELECT_META))
    for rows in _pages(connection, database, columns):
        numbers = [row[0] for row in rows]
        fields: dict[int, set[tuple[Any, bytes]]] = {number: set() for number in numbers}
        for node, field, value in _belonging(connection, database, "rlm_node_fields", "field, value", numbers):
            fields[node].add((field, bytes(value)))
        words = {
            node: (size, terms, dict(np.frombuffer(counted, COUNT, len(counted) // COUNT.itemsize).tolist()))
            for node, size, terms, counted in _belonging(
                connection, database, "rlm_node_terms", "length, terms, counted", numbers
            )
        }
        stored: dict[int, bytes] = {}
        if has_vectors:
            stored = dict(
                _belonging(connection, database, "rlm_node_vectors", "vector_send(embedding::vector)", numbers)
            )
        for node, id, key, metadata, text, hashed, embedded in rows:
            where = f"node {id!r}"
            if key != key_of(id):
                yield Problem(where, "it cannot be found by its id")
            if hashed != text_hash(text):
                yield Problem(where, "its text is not the one it was stored with")
            try:
                if fields[node] != set(encoded_rows(json.loads(metadata))):
                    yield Problem(where, "its rows for filters do not match its metadata")
            except ValueError as error:
                yield Problem(where, f"its metadata is not JSON: {error}")
            expected = tokenizer.words(text)
            size, terms, counts = words.get(node, (0, [], {}))
            if size != len(expected) or sorted(counts.values()) != sorted(Counter(expected).values()):
                yield Problem(where, "its keywords are not those of its text")
            if terms != list(counts):
                yield Problem(where, "it is not found by the keywords that are counted")
            texts_with.update(terms)
            count, length, last = count + 1, length + size, max(last, node)
            if embedded != (node in stored):
                yield Problem(where, "it should have a vector" if embedded else "it has a vector and does not know")
            elif embedded:
                (vector,) = vectors_of([stored[node]], len(stored[node]) // 4 - 1)
                if not abs(float(np.linalg.norm(vector)) - 1.0) < 0.01:
                    yield Problem(where, f"its vector has length {np.linalg.norm(vector):g}, expected 1")
    kept = dict(rows_of(connection, "SELECT term, texts FROM rlm_terms WHERE namespace = %s", (namespace,)))
    if kept != dict(texts_with):
        yield Problem("rlm_terms", "the counts of texts with a word are not those of the texts")
    row = row_of(connection, "SELECT nodes, words, last_number FROM rlm_namespaces WHERE namespace = %s", (namespace,))
    nodes, words_kept, last_number = row or (0, 0, 0)
    where = f"namespace {database.name!r}"
    if (nodes, words_kept) != (count, length):
        yield Problem(where, f"it counts {nodes} nodes and {words_kept} words, there are {count} and {length}")
    if last_number < last:
        yield Problem(where, "it would give a number to a new node that another one has")
    tables = [*_HISTORIES, *([("rlm_node_vectors", "node")] if has_vectors else [])]
    for table, column in tables:
        for (node,) in rows_of(
            connection,
            f"SELECT DISTINCT t.{column} FROM {table} t WHERE t.namespace = %s AND NOT EXISTS "
            f"(SELECT 1 FROM rlm_nodes n WHERE n.namespace = t.namespace AND n.node = t.{column})",
            (namespace,),
        ):
            yield Problem(table, f"there are rows for node number {node}, which is not there")


def _belonging(connection: Connection, database: Database, table: str, columns: str, nodes: list[int]) -> list[Any]:
    """Return (node, columns…) of what belongs to these nodes."""
    select = f"SELECT node, {columns} FROM {table} WHERE namespace = %s AND node = ANY (%s::bigint[])"
    return rows_of(connection, select, (database.namespace, nodes))


def _log_problems(connection: Connection, database: Database) -> Iterator[Problem]:
    """Yield whether the promotion log was changed or cut, and nodes whose tier is not the one it leads to."""
    where, last = f"promotion log of namespace {database.name!r}", None
    tiers: dict[str, str] = {}
    after = 0
    select = statements.SELECT_LOG.format(narrowed="")
    while rows := rows_of(connection, select, (database.namespace, after, _BATCH)):
        for row in rows:
            try:
                entry = entry_of(row)
            except (ValueError, TypeError, OverflowError) as error:
                yield Problem(where, f"entry {row[0]} was changed: {error}")
                return
            if (broken := first_broken([entry], previous_hash=last or chain_start(database.name))) is not None:
                yield Problem(where, f"entry {broken} was changed, or one before it is missing")
                return
            last, after = entry.hash, entry.sequence
            if entry.decision.moved:
                tiers[entry.decision.node_id] = entry.decision.to_tier
    head, _ = row_of(connection, statements.SELECT_LOG_HEAD, (database.namespace,)) or (None, 0)
    if last != head:
        yield Problem(where, "its last entries are missing")
    for page in _pages(connection, database, "node, id, tier"):
        for _, id, tier in page:
            if tiers.get(id, "task") != tier:
                yield Problem(f"node {id!r}", f"it is in {tier}, the log leads to {tiers.get(id, 'task')}")


def _message_problems(connection: Connection, database: Database) -> Iterator[Problem]:
    """Yield messages of conversations and values under keys that cannot be read."""
    for select, what in (
        ("SELECT message, key, content FROM rlm_messages WHERE namespace = %s", "message {0} of conversation {1!r}"),
        ("SELECT collection, key, value FROM rlm_key_values WHERE namespace = %s", "{1!r} in collection {0!r}"),
    ):
        for first, second, content in rows_of(connection, select, (database.namespace,)):
            try:
                json.loads(content)
            except ValueError as error:
                yield Problem(what.format(first, second), f"it is not JSON: {error}")
