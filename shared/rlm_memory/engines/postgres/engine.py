"""The engine on a server: one namespace of a PostgreSQL database with pgvector."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Final
from uuid import UUID

import numpy as np
import psycopg

from rlm_memory.conflicts import repeated
from rlm_memory.engines.changes import KEYS as CHANGE_KEYS
from rlm_memory.engines.changes import is_finished, is_under_way, rows_of_change
from rlm_memory.engines.postgres import statements, vectors
from rlm_memory.engines.postgres.connection import Connection, Database
from rlm_memory.engines.postgres.conversations import PostgresMessages
from rlm_memory.engines.postgres.filters import Compiler, encoded_rows
from rlm_memory.engines.postgres.inspection import find_problems, measure
from rlm_memory.engines.postgres.key_values import PostgresKeyValues
from rlm_memory.engines.postgres.ledger import PostgresLedger
from rlm_memory.engines.postgres.parts import PostgresParts
from rlm_memory.engines.postgres.schema import PARTITIONS_KEY, migrate
from rlm_memory.engines.postgres.scored import Row, Scored
from rlm_memory.engines.postgres.threads import PostgresThreads
from rlm_memory.engines.postgres.values import key_of, row_of, rows_of, vectors_of
from rlm_memory.engines.postgres.words import Eligible, KeywordLeg, Words
from rlm_memory.engines.rows import node_of
from rlm_memory.engines.texts import BLANKS, Tokenizer, text_hash
from rlm_memory.errors import (
    EmbeddingMismatchError,
    InvalidInputError,
    NodeNotFoundError,
    StoreConflictError,
    StoreError,
    StoreReadOnlyError,
)
from rlm_memory.filters import Filter
from rlm_memory.ports import Candidates, Identity, NewModel, Scope, Vector
from rlm_memory.records import TIERS, CheckReport, Node, Stats, Tier, VectorStorage
from rlm_memory.scoring import unit
from rlm_memory.times import milliseconds

_METRIC: Final = "cosine"
_FEW: Final = 2_000
"""So many eligible nodes are all looked at, without an index."""


class PostgresEngine:
    """One namespace of a store on a server."""

    def __init__(
        self,
        location: str,
        *,
        namespace: str,
        tokenizer: str,
        embedding_storage: VectorStorage,
        stop_words: frozenset[str],
        read_only: bool,
    ) -> None:
        """Connect to the store, bringing it up to date; a new one gets this tokenizer.

        Raises:
            StoreError: The server cannot be reached, the store is from a newer release, or this role may not make it.
        """
        Tokenizer(tokenizer)
        self._database = Database(location, namespace=namespace, read_only=read_only)
        self.location = self._database.location
        self.ledger = PostgresLedger(self._database)
        self.key_values = PostgresKeyValues(self._database)
        self.messages = PostgresMessages(self._database)
        self.parts = PostgresParts(self._database)
        self._name = namespace
        self._namespace: UUID = self._database.namespace
        self._grown = False  # whether the namespace has several times as many nodes as the planner may know of
        self._outgrown = False  # whether the namespace has more vectors than should be without an index
        self._index_settled = False  # it is there, or cannot be built by this handle
        self._index_seen = False
        try:
            defaults = {"tokenizer": tokenizer, "embedding_storage": embedding_storage, "metric": _METRIC}
            migrate(self._database, defaults=defaults)
            with self._database.reading() as connection:
                meta = _meta(connection)
            self._tokenizer = meta["tokenizer"]
            self._storage: VectorStorage = meta["embedding_storage"]  # type: ignore[assignment]  # one was written
            self._keywords = KeywordLeg(self._namespace, Tokenizer(self._tokenizer), stop_words)
        except BaseException:
            self._database.close()
            raise

    # -- transactions -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, *, wait: bool = True, everywhere: bool = False) -> Iterator[None]:
        with self._database.transaction(wait=wait, everywhere=everywhere):
            yield
        if self._database.in_transaction:
            return
        if self._grown:
            self._grown = False
            self._count_rows()
        if self._outgrown:
            self._outgrown = False
            self._build_index()

    def _count_rows(self) -> None:
        """Let the planner know how many rows there are: the server would find out by itself within minutes.

        Meanwhile a search among 5,000 nodes, of which the planner knows of nine, takes twenty seconds.
        """
        with contextlib.suppress(StoreError), self._database.outside() as connection:
            for table, _ in rows_of(connection, statements.SELECT_SIZES):
                connection.execute(f"ANALYZE {table}".encode())

    def _build_index(self) -> None:
        """Build the index of the vectors; what was written is kept whether that succeeds or not."""
        try:
            with self._database.outside() as connection:
                meta = _meta(connection)
                dimensions = _dimensions(meta)
                if dimensions is None or not row_of(connection, statements.TRY_LOCK_INDEX)[0]:
                    return
                try:
                    # of a table in partitions it is built while writers wait: the server has no other way
                    form = vectors.VectorForm(dimensions, self._storage)
                    vectors.create_index(connection, form, concurrently=int(meta.get(PARTITIONS_KEY, 0)) == 0)
                finally:
                    connection.execute(statements.UNLOCK_INDEX)
        except StoreConflictError:
            return  # the next call that adds something tries again
        except StoreError:
            # This role does not own the table, or the server has no room or no time for it: all are compared as
            # before, and `compact` tries again.
            self._index_settled = True

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        with self._database.reading():
            yield

    def threads(self, kind: str) -> PostgresThreads:
        return PostgresThreads(self._database, kind)

    def namespaces(self) -> list[str]:
        with self._database.reading() as connection:
            return [name for (name,) in rows_of(connection, statements.SELECT_NAMESPACES)]

    # -- identity -----------------------------------------------------------------------------------------------

    def identity(self) -> Identity:
        meta = dict(self._database.look_up(statements.SELECT_META))
        return Identity(
            tokenizer=meta["tokenizer"],
            embedding_storage=self._storage,
            model=meta.get("embedding_model", ""),
            dimensions=_dimensions(meta),
        )

    @repeated
    def adopt(self, *, model: str, dimensions: int) -> None:
        with self._database.transaction() as connection:
            connection.execute(statements.LOCK_SCHEMA)
            meta = _meta(connection)
            kept = _dimensions(meta)
            if kept is not None and kept != dimensions:
                if rows_of(connection, statements.HAS_VECTORS):
                    raise EmbeddingMismatchError(f"{self.location} holds vectors of {kept} numbers, got {dimensions}.")
                connection.execute("DROP TABLE rlm_node_vectors")
            if kept != dimensions:
                self._create_vectors(connection, dimensions, meta)
            if model:
                connection.execute(statements.PUT_META, ("embedding_model", model))

    def _create_vectors(self, connection: Connection, dimensions: int, meta: Mapping[str, str]) -> None:
        """Create the empty table for vectors of this length, and remember the length."""
        self._index_settled = self._index_seen = False
        form = vectors.VectorForm(dimensions, self._storage)
        vectors.create_table(connection, form, int(meta.get(PARTITIONS_KEY, 0)))
        connection.execute(statements.PUT_META, ("dimensions", str(dimensions)))

    # -- writing ------------------------------------------------------------------------------------------------

    def put(self, nodes: Sequence[Node], given: Sequence[Vector | None], now_ms: int) -> list[str]:
        with self._database.transaction() as connection:
            stored = {row[0]: row[1:] for row in self._stored(connection, [node.id for node in nodes])}
            last = self._numbers(connection, len(nodes) - len(stored)) - (len(nodes) - len(stored))
            numbers: dict[str, int] = {}
            updates: list[tuple[Any, ...]] = []
            texts: list[tuple[int, str]] = []
            rewritten: list[int] = []
            dropped: list[int] = []
            with connection.cursor().copy(statements.COPY_NODES) as copy:
                for node, vector in zip(nodes, given, strict=True):
                    if known := stored.get(node.id):
                        number, embedded, text, _ = known
                        if text != node.text:
                            rewritten.append(number)
                            texts.append((number, node.text))
                        # A vector stays with its text: it goes when that changes, or when another one is given.
                        if embedded and (vector is not None or text != node.text):
                            dropped.append(number)
                        has_vector = vector is not None or (embedded and text == node.text)
                        updates.append((*_content(node), has_vector, now_ms, self._namespace, number))
                    else:
                        last = number = last + 1
                        texts.append((number, node.text))
                        row = (self._namespace, number, *_history(node, now_ms), *_content(node), vector is not None)
                        copy.write_row(row)
                    numbers[node.id] = number
            if updates:
                connection.cursor().executemany(statements.UPDATE_NODE, updates)
                connection.execute(statements.NOTE_UNWEIGHED, (self._namespace, [update[-1] for update in updates]))
            self._drop_vectors(connection, dropped)
            self._insert_vectors(
                connection, [(numbers[n.id], v) for n, v in zip(nodes, given, strict=True) if v is not None]
            )
            self._put_fields(connection, [row[0] for row in stored.values()], numbers, nodes)
            words = self._reword(connection, rewritten, texts)
            added = (len(nodes) - len(stored), words, self._namespace)
            (count,) = row_of(connection, statements.ADD_TO_SUMS, added)
            self._grown = self._grown or _magnitude(count) > _magnitude(count - added[0])
            if count > vectors.INDEXED_FROM and not self._index_settled:
                self._index_settled = row_of(connection, statements.HAS_INDEX)[0]
                self._outgrown = not self._index_settled
        return [node.id for node in nodes if node.id not in stored]

    def _reword(self, connection: Connection, rewritten: Sequence[int], texts: Sequence[tuple[int, str]]) -> int:
        before = self._keywords.take(connection, rewritten)
        return self._keywords.add(connection, texts) - before

    def _stored(self, connection: Connection, ids: Sequence[str]) -> list[Any]:
        """Return (id, node, embedded, text, tier) of these nodes that are there."""
        return rows_of(connection, statements.SELECT_STORED, ([key_of(id) for id in ids], self._namespace))

    def _numbers(self, connection: Connection, count: int) -> int:
        """Take so many numbers and return the last of them."""
        return int(row_of(connection, statements.TAKE_NUMBERS, (count, self._namespace))[0])

    def _insert_vectors(self, connection: Connection, given: Sequence[tuple[int, Vector]]) -> None:
        if given:
            rows = unit(np.stack([vector for _, vector in given]))
            vectors.insert(connection, self._namespace, [node for node, _ in given], rows, self._storage)

    def _drop_vectors(self, connection: Connection, nodes: Sequence[int]) -> None:
        if nodes:
            connection.execute(statements.DELETE_VECTORS, (self._namespace, list(nodes)))

    def _put_fields(
        self, connection: Connection, known: list[int], numbers: Mapping[str, int], nodes: Sequence[Node]
    ) -> None:
        if known:
            connection.execute(statements.DELETE_FIELDS, (self._namespace, known))
        rows = [
            (self._namespace, field, value, numbers[node.id])
            for node in nodes
            for field, value in encoded_rows(node.metadata)
        ]
        if rows:
            with connection.cursor().copy(statements.COPY_FIELDS) as copy:
                for row in rows:
                    copy.write_row(row)

    @repeated
    def put_vectors(self, ids: Sequence[str], texts: Sequence[str], vectors: Vector) -> int:
        with self._database.transaction() as connection:
            asked = dict(zip(ids, zip(texts, vectors, strict=True), strict=True))
            given = [
                (node, asked[id][1])
                for id, node, embedded, text, _ in self._stored(connection, ids)
                if not embedded and text == asked[id][0]
            ]
            self._insert_vectors(connection, given)
            connection.execute(statements.SET_EMBEDDED, (self._namespace, [node for node, _ in given]))
            return len(given)

    def delete(self, ids: Sequence[str]) -> list[tuple[str, Tier]]:
        with self._database.transaction() as connection:
            return self._delete(connection, self._stored(connection, list(dict.fromkeys(ids))))

    def delete_where(self, scope: Scope) -> list[tuple[str, Tier]]:
        with self._database.transaction() as connection:
            where, values = self._condition(connection, scope)
            select = statements.SELECT_STORED_WHERE.format(where=where)
            return self._delete(connection, rows_of(connection, select, (self._namespace, *values)))

    def _delete(self, connection: Connection, rows: Sequence[Any]) -> list[tuple[str, Tier]]:
        nodes = [row[1] for row in rows]
        if nodes:
            words = self._keywords.take(connection, nodes)
            self._drop_vectors(connection, [row[1] for row in rows if row[2]])
            for statement in (statements.DELETE_FIELDS, *statements.DELETE_BELONGINGS, statements.DELETE_NODES):
                connection.execute(statement, (self._namespace, nodes))
            connection.execute(statements.ADD_TO_SUMS, (-len(nodes), -words, self._namespace))
        return [(row[0], row[4]) for row in rows]

    # -- reading ------------------------------------------------------------------------------------------------

    def _condition(self, connection: Connection, scope: Scope) -> tuple[str, list[Any]]:
        """Return the scope as a condition on `rlm_nodes n`."""
        where, values = self._compiled(connection, scope.where)
        if set(scope.tiers) == set(TIERS):
            return where, values
        return f"n.tier = ANY (%s::text[]) AND {where}", [list(scope.tiers), *values]

    def _compiled(self, connection: Connection, where: Filter | None) -> tuple[str, list[Any]]:
        compiler = Compiler(self._namespace, lambda sql, values: rows_of(connection, sql, values))
        return compiler.compile(where)

    @repeated
    def get(self, ids: Sequence[str]) -> list[Node]:
        with self._database.reading() as connection:
            values = ([key_of(id) for id in ids], self._namespace)
            return self._nodes(rows_of(connection, statements.SELECT_NODES_BY_ID, values))

    @repeated
    def nodes(self, keys: Sequence[int]) -> list[Node]:
        with self._database.reading() as connection:
            rows = rows_of(connection, statements.SELECT_NODES_BY_NUMBER, (list(keys), self._namespace))
            if len(rows) != len(keys):
                raise StoreError(f"{self.location}: an index lists nodes that are not there; run rlm-memory check.")
            return self._nodes(rows)

    def _nodes(self, rows: Iterable[Any]) -> list[Node]:
        return [node_of(row, self._name) for row in rows]

    @repeated
    def select(self, scope: Scope, *, limit: int, after: str | None, newest_first: bool = False) -> list[Node]:
        with self._database.reading() as connection:
            where, values = self._condition(connection, scope)
            node, written = (_PAST_ALL, _PAST_ALL) if newest_first else (0, 0)
            if after is not None:
                node, written = self._place_of(connection, after)
            select = statements.LIST_NEWEST_NODES if newest_first else statements.LIST_NODES
            start = [written, node] if newest_first else [node]
            bound = (self._namespace, *start, *values, min(limit, _PAST_ALL))
            return self._nodes(rows_of(connection, select.format(where=where), bound))

    def _place_of(self, connection: Connection, id: str) -> tuple[int, int]:
        """Return the number of a node, and when it was written last."""
        row = row_of(connection, statements.SELECT_PLACE_IN_LIST, (self._namespace, key_of(id)))
        if row is None:
            raise NodeNotFoundError(f"There is no node {id!r} to go on after; start again without `after`.")
        return row[0], row[1]

    @repeated
    def count(self, scope: Scope) -> int:
        with self._database.reading() as connection:
            where, values = self._condition(connection, scope)
            select = statements.COUNT_NODES.format(where=where)
            return int(row_of(connection, select, (self._namespace, *values))[0])

    @repeated
    def pending(self, *, limit: int, after: str | None) -> list[Node]:
        with self._database.reading() as connection:
            lowest = 0 if after is None else self._place_of(connection, after)[0]
            return self._nodes(rows_of(connection, statements.SELECT_PENDING, (self._namespace, lowest, limit)))

    # -- search -------------------------------------------------------------------------------------------------

    @repeated
    def candidates(self, scope: Scope, *, vector: Vector | None, question: str | None, n: int, k: int) -> Candidates:
        # In a pipeline nobody waits for a setting to be acknowledged.
        with self._database.reading() as connection, connection.pipeline():
            asked = {} if question is None else self._keywords.asked(question)
            others = [tier for tier in TIERS if tier not in scope.tiers]
            state = row_of(
                connection,
                statements.SELECT_STATE,
                {"namespace": self._namespace, "others": others, "terms": list(asked)},
            )
            if state is None or not state[0]:
                return _NO_CANDIDATES
            texts, length, kept, are_elsewhere, terms, counts = state
            eligible = self._eligible(connection, scope) if scope.where is not None or are_elsewhere else None
            query = None if vector is None or kept is None else unit(vector)
            words = None
            if terms:  # none of a question's may stand in any text
                words = self._keywords.words(asked, dict(zip(terms, counts, strict=True)), texts=texts, length=length)
            scored = Scored(self._namespace, query, self._storage, by_words=words is not None)
            nearest: Callable[[], list[Row]] = list
            if query is not None:
                by_index = texts > vectors.COMPARED and self._is_indexed(connection)
                nearest = vectors.nearest(connection, scored, query, eligible, n, by_index=by_index)
            said = [] if words is None else self._keywords.candidates(connection, scored, words, eligible, n)
            found = {row[0]: row for row in (*said, *nearest())}
            if len(found) < k:
                where, values = ("true", list[Any]()) if eligible is None else (eligible.where, eligible.values)
                newest = statements.SELECT_NEWEST.format(where=where)
                bound = (self._namespace, list(found), *values, k - len(found))
                found |= {row[0]: row for row in scored.rows(connection, newest, bound, known="node")}
            return self._scored(connection, list(found.values()), words)

    def _is_indexed(self, connection: Connection) -> bool:
        """Return whether there is, or was, an index of the vectors. A search by one that is gone compares all."""
        self._index_seen = self._index_seen or row_of(connection, statements.HAS_INDEX)[0]
        return self._index_seen

    def _scored(self, connection: Connection, rows: Sequence[Row], words: Words | None) -> Candidates:
        if not rows:
            return _NO_CANDIDATES
        nodes = [row[0] for row in rows]
        keyword = coverage = np.full(len(rows), np.nan)
        if words is not None:
            keyword, coverage = self._keywords.scores(rows, words)
        return Candidates(
            keys=nodes,
            semantic=np.clip(np.array([row[3] for row in rows], dtype=np.float64), -1.0, 1.0),  # None becomes NaN
            keyword=keyword,
            coverage=coverage,
            origins=lambda at: rows_of(
                connection, statements.SELECT_ORIGINS, ([nodes[i] for i in at], self._namespace)
            ),
        )

    def _eligible(self, connection: Connection, scope: Scope) -> Eligible:
        """Return which nodes may be found."""
        where, values = self._condition(connection, scope)
        count = statements.COUNT_NODES_UP_TO.format(where=where)
        found = row_of(connection, count, (self._namespace, *values, _FEW + 1))[0]
        return Eligible(where, values, few=found <= _FEW)

    def vectors(self, keys: Sequence[int]) -> Vector:
        with self._database.reading() as connection:
            kept = _dimensions(_meta(connection))
            if kept is None:
                return np.full((len(keys), 0), np.nan, dtype=np.float32)
            rows = rows_of(connection, statements.SELECT_VECTORS, (list(keys), self._namespace))
            return _matrix([row[0] for row in rows], kept)

    @repeated
    def vectors_of(self, ids: Sequence[str]) -> list[Vector | None]:
        with self._database.reading() as connection:
            kept = _dimensions(_meta(connection))
            if kept is None:
                return [None] * len(ids)
            values = ([key_of(id) for id in ids], self._namespace, self._namespace)
            stored = [row[0] for row in rows_of(connection, statements.SELECT_VECTORS_OF_IDS, values)]
            return [None if one is None else row for one, row in zip(stored, _matrix(stored, kept), strict=True)]

    def known_vectors(self, texts: Iterable[str]) -> Mapping[str, Vector]:
        asked = {text_hash(text): text for text in texts}
        with self._database.reading() as connection:
            kept = _dimensions(_meta(connection))
            if kept is None or not asked:
                return {}
            rows = rows_of(connection, statements.SELECT_TEXT_OWNERS, (self._namespace, self._namespace, list(asked)))
            # Two texts may share a hash.
            found = [(text, stored) for text, stored in rows if asked.get(text_hash(text)) == text]
            return dict(
                zip([text for text, _ in found], vectors_of([stored for _, stored in found], kept), strict=True)
            )

    # -- a change of the embedding model ------------------------------------------------------------------------

    @repeated
    def begin_change(self, new: NewModel) -> None:
        with self._database.transaction() as connection:
            if not row_of(connection, statements.OWNS_STORE)[0]:  # told before texts are embedded for it
                raise StoreReadOnlyError(
                    f"{self.location}: a change of the model makes the table of vectors anew; only the role that owns "
                    "the tables may do that."
                )
            connection.execute(statements.LOCK_SCHEMA)  # or another namespace may begin the same change just now
            if not is_under_way(_meta(connection), new):  # what another model has left behind is of no use
                connection.execute(statements.DELETE_NEW_VECTORS)
                connection.cursor().executemany(statements.PUT_META, rows_of_change(new))

    @repeated
    def outdated(self, new: NewModel, *, limit: int) -> list[tuple[int, str]]:
        with self._database.reading() as connection:
            if is_finished(_meta(connection), new, self.location):
                return []
            rows = rows_of(connection, statements.SELECT_OUTDATED, (BLANKS, limit))
            return [(namespace.int << 64 | node, text) for namespace, node, text in rows]

    def count_outdated(self) -> int:
        with self._database.reading() as connection:
            (count,) = row_of(connection, statements.COUNT_OUTDATED, (BLANKS,))
        return int(count)

    @repeated
    def put_new_vectors(self, new: NewModel, keys: Sequence[int], texts: Sequence[str], vectors: Vector) -> None:
        rows = [
            (UUID(int=key >> 64), key & (1 << 64) - 1, text_hash(text), vector.astype("<f4").tobytes())
            for key, text, vector in zip(keys, texts, unit(vectors), strict=True)
        ]
        with self._database.transaction() as connection:
            if not is_finished(_meta(connection), new, self.location):
                connection.cursor().executemany(statements.PUT_NEW_VECTOR, rows)

    @repeated
    def replace_vectors(self, new: NewModel) -> bool:
        with self._database.transaction(everywhere=True) as connection:
            connection.execute(statements.LOCK_SCHEMA)
            meta = _meta(connection)
            if is_finished(meta, new, self.location):
                return True
            if rows_of(connection, statements.SELECT_OUTDATED, (BLANKS, 1)):
                return False
            connection.execute("DROP TABLE IF EXISTS rlm_node_vectors")
            self._create_vectors(connection, new.dimensions, meta)
            connection.execute(statements.FORGET_EMBEDDED)
            after: tuple[UUID, int] = (UUID(int=0), 0)
            while rows := rows_of(connection, statements.SELECT_NEW_VECTORS, (*after, _BATCH)):
                for namespace in dict.fromkeys(row[0] for row in rows):
                    own = [row for row in rows if row[0] == namespace]
                    stored = np.stack([np.frombuffer(row[2], dtype="<f4") for row in own])
                    vectors.insert(connection, namespace, [row[1] for row in own], stored, self._storage)
                after = rows[-1][:2]
            if row_of(connection, statements.SELECT_MOST_NODES)[0] > vectors.INDEXED_FROM:
                vectors.create_index(connection, vectors.VectorForm(new.dimensions, self._storage), concurrently=False)
            connection.execute(statements.SET_EMBEDDED_AGAIN)
            connection.execute(statements.DELETE_NEW_VECTORS)
            connection.cursor().executemany(statements.DELETE_META, [(key,) for key in CHANGE_KEYS])
            connection.execute(statements.PUT_META, ("embedding_model", new.model))
            return True

    # -- the store ----------------------------------------------------------------------------------------------

    @repeated
    def stats(self) -> Stats:
        with self._database.reading() as connection:
            return measure(connection, self.location, self._database)

    def check(self) -> CheckReport:
        with self._database.reading() as connection:
            return CheckReport(tuple(find_problems(connection, self._database, Tokenizer(self._tokenizer))))

    def backup(self, path: str | PathLike[str]) -> None:
        if os.path.exists(path):
            raise InvalidInputError(f"{os.fspath(path)} exists already; choose another path for the backup.")
        raise StoreError(
            f"{self.location}: a server is not backed up into a file by this program. Use pg_dump or pg_basebackup; "
            "or copy the store into a file with: rlm-memory copy URL FILE"
        )

    def compact(self) -> None:
        with self._database.reading() as connection:
            (most,) = row_of(connection, statements.SELECT_MOST_NODES)
        if most > vectors.INDEXED_FROM:
            self._build_index()
        refused: list[str] = []

        def note(diagnostic: psycopg.errors.Diagnostic) -> None:
            if diagnostic.severity_nonlocalized == "WARNING":
                refused.append(str(diagnostic.message_primary))

        with self._database.outside() as connection:
            tables = [name for name, _ in rows_of(connection, statements.SELECT_SIZES)]
            connection.add_notice_handler(note)
            try:
                for table in tables:
                    connection.execute(f"VACUUM (ANALYZE) {table}".encode())
            finally:
                connection.remove_notice_handler(note)
        if refused:  # a server does not call it an error
            raise StoreReadOnlyError(
                f"{self.location}: tables were left as they are ({refused[0]}); let their owner do it."
            )

    def close(self) -> None:
        self._database.close()


def _magnitude(count: int) -> int:
    """Return in which power of four a count lies, 0 for all so small that any plan will do."""
    return max(count.bit_length() // 2 - 3, 0)


def _meta(connection: Connection) -> dict[str, str]:
    return dict(rows_of(connection, statements.SELECT_META))


def _dimensions(meta: Mapping[str, str]) -> int | None:
    return int(meta["dimensions"]) if "dimensions" in meta else None


def _matrix(stored: Sequence[bytes | None], dimensions: int) -> Vector:
    """Return vectors as rows, NaN for those that are not there."""
    rows = np.full((len(stored), dimensions), np.nan, dtype=np.float32)
    present = [i for i, one in enumerate(stored) if one is not None]
    rows[present] = vectors_of([one for one in stored if one is not None], dimensions)
    return rows


def _content(node: Node) -> tuple[Any, ...]:
    """Return the columns that every `add` of a node writes."""
    return (
        node.type, node.subtype, float(node.confidence), node.provenance, text_hash(node.text),
        _to_json(node.metadata), node.text,
    )  # fmt: skip


def _history(node: Node, now_ms: int) -> tuple[Any, ...]:
    """Return the columns that a node gets once and keeps."""
    return (
        node.id, key_of(node.id), node.tier, now_ms,
        milliseconds(node.created_at) if node.created_at else now_ms,
        milliseconds(node.updated_at) if node.updated_at else now_ms,
        milliseconds(node.last_accessed) if node.last_accessed else None,
        node.access_count, node.pinned,
    )  # fmt: skip


_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BATCH: Final = 1000
_PAST_ALL: Final = 2**63 - 1
_NO_CANDIDATES: Final = Candidates([], np.empty(0), np.empty(0), np.empty(0), lambda _: [])
