"""The embedded engine: one SQLite file with FTS5 and sqlite-vec."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Final

import apsw
import numpy as np
from numpy.typing import NDArray

from rlm_memory.engines.changes import KEYS as CHANGE_KEYS
from rlm_memory.engines.changes import is_finished, is_under_way, rows_of_change
from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import Database, row_of, rows_of
from rlm_memory.engines.sqlite.conversations import SQLiteMessages
from rlm_memory.engines.sqlite.filters import SQLValue, compile_filter, compile_numbers, field_rows
from rlm_memory.engines.sqlite.index import NO_PLACE, IndexState, NodeIndex, Positions, node_range
from rlm_memory.engines.sqlite.inspection import find_problems, measure
from rlm_memory.engines.sqlite.key_values import SQLiteKeyValues
from rlm_memory.engines.sqlite.keys import length_of, text_hash, vector_key
from rlm_memory.engines.sqlite.ledger import SQLiteLedger
from rlm_memory.engines.sqlite.matching import KeywordLeg, Words
from rlm_memory.engines.sqlite.parts import SQLiteParts
from rlm_memory.engines.sqlite.rows import node_of
from rlm_memory.engines.sqlite.schema import migrate
from rlm_memory.engines.sqlite.threads import SQLiteThreads
from rlm_memory.engines.sqlite.vector_chunks import delete_vectors, insert_vectors
from rlm_memory.engines.sqlite.vectors import (
    VectorFormat,
    check_layout,
    last_rowid,
    read_layout,
    read_vectors,
    unit,
)
from rlm_memory.engines.texts import BLANKS, Tokenizer
from rlm_memory.errors import EmbeddingMismatchError, NodeNotFoundError, StoreCorruptError
from rlm_memory.forks import renewed_in_child
from rlm_memory.keywords import segment
from rlm_memory.ports import Candidates, Identity, NewModel, Scope, Vector
from rlm_memory.records import TIERS, CheckReport, Node, Stats, Tier, VectorStorage
from rlm_memory.times import milliseconds

_METRIC: Final = "cosine"


class SQLiteEngine:
    """One namespace of a store file, or of a store in memory."""

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
        """Open the store, bringing it up to date; a new one gets this tokenizer and this form of vectors.

        Raises:
            StoreError: The file cannot be opened, is from a newer release, or is not ours.
            InvalidInputError: There is no such tokenizer.
        """
        if not os.path.exists(location):
            Tokenizer(tokenizer)  # what there is not is refused before a file is made that would have it
        self._database = Database(location, read_only=read_only)
        self.location = self._database.location
        self.ledger = SQLiteLedger(self._database, namespace)
        self.key_values = SQLiteKeyValues(self._database, namespace)
        self.messages = SQLiteMessages(self._database, namespace)
        self.parts = SQLiteParts(self._database, namespace)
        self._namespace = namespace
        self._lock = threading.Lock()
        self._bound = False
        self._database.after_rollback = self._unbind
        renewed_in_child(self)
        try:
            defaults = {"embedding_storage": embedding_storage, "metric": _METRIC}
            migrate(self._database, tokenizer=tokenizer, defaults=defaults)
            with self._database.reading() as connection:
                meta = _meta(connection)
                if lost := {"tokenizer", "embedding_storage"} - meta.keys():
                    raise StoreCorruptError(
                        f"{self.location}: the database is damaged, it has lost its {' and '.join(sorted(lost))}; "
                        "restore a backup, or export what can be read"
                    )
                self._tokenizer = meta["tokenizer"]
                self._storage: VectorStorage = meta["embedding_storage"]
                self._stop_words = stop_words
                self._bind(connection)
            self._check_layout()
        except BaseException:
            self._database.close()
            raise

    def after_fork_in_child(self) -> None:
        """A thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def _bind(self, connection: apsw.Connection) -> bool:
        """Find this namespace's number; return whether it has one, which it gets with its first node."""
        row = row_of(connection, statements.SELECT_NAMESPACE, (self._namespace,))
        if row is None:
            return False
        self._number: int = row[0]
        self._index = NodeIndex(self._number)
        self._keywords = KeywordLeg(self._number, self._tokenizer, self._stop_words)
        self._bound = True
        return True

    def _unbind(self) -> None:
        """Forget what was read in a transaction that has been taken back: the namespace may have been new in it."""
        self._bound = False

    def _exists(self, connection: apsw.Connection) -> bool:
        if self._bound:
            return True
        with self._lock:
            return self._bound or self._bind(connection)

    def _check_layout(self) -> None:
        with self._database.exclusive() as connection:
            if layout := read_layout(connection):
                check_layout(connection, layout)

    # -- transactions -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, *, wait: bool = True, everywhere: bool = False) -> Iterator[None]:
        with self._database.transaction(wait=wait):
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        with self._database.reading():
            yield

    def threads(self, kind: str) -> SQLiteThreads:
        return SQLiteThreads(self._database, self._namespace, kind)

    def namespaces(self) -> list[str]:
        with self._database.reading() as connection:
            return [name for (name,) in rows_of(connection, statements.SELECT_NAMESPACES)]

    # -- identity -----------------------------------------------------------------------------------------------

    def identity(self) -> Identity:
        with self._database.reading() as connection:
            meta = _meta(connection)
        dimensions = meta.get("dimensions")
        return Identity(
            tokenizer=meta["tokenizer"],
            embedding_storage=meta["embedding_storage"],
            model=meta.get("embedding_model", ""),
            dimensions=None if dimensions is None else int(dimensions),
        )

    def adopt(self, *, model: str, dimensions: int) -> None:
        with self._database.transaction() as connection:
            layout = read_layout(connection)
            if layout is not None and layout.dimensions != dimensions:
                if last_rowid(connection):
                    raise EmbeddingMismatchError(
                        f"{self.location} holds vectors of {layout.dimensions} numbers, got {dimensions}."
                    )
                connection.execute("DROP TABLE node_embeddings")
                layout = None
            if layout is None:
                self._create_vectors(connection, dimensions)
            if model:
                connection.execute(statements.PUT_META, ("embedding_model", model))

    def _create_vectors(self, connection: apsw.Connection, dimensions: int) -> VectorFormat:
        """Create the empty table for vectors of this length, and remember its form."""
        layout = VectorFormat.for_new_store(dimensions, self._storage)
        connection.execute(layout.create_table)
        rows = [("dimensions", str(dimensions)), ("vectors_in_chunk", str(layout.chunk))]
        connection.executemany(statements.PUT_META, rows)
        return layout

    # -- writing ------------------------------------------------------------------------------------------------

    def put(self, nodes: Sequence[Node], vectors: Sequence[Vector | None], now_ms: int) -> list[str]:
        with self._database.transaction() as connection:
            number, last_node = self._own_namespace(connection)
            asked = json.dumps([node.id for node in nodes])
            stored = {row[0]: row[1:] for row in connection.execute(statements.SELECT_STORED, (asked, number))}
            self._drop_fields(connection, [(row[0], row[3]) for row in stored.values()])
            rewritten = [stored[n.id][0] for n in nodes if n.id in stored and stored[n.id][2] != n.text]
            words = -_unindex(connection, rewritten)
            # A vector stays with its text: it goes when the text changes, or when another one is given.
            dropped = [
                (node.id, stored[node.id][1])
                for node, vector in zip(nodes, vectors, strict=True)
                if node.id in stored and (vector is not None or stored[node.id][2] != node.text)
            ]
            self._drop_vectors(connection, dropped)
            places = self._insert_vectors(
                connection,
                [n.id for n, v in zip(nodes, vectors, strict=True) if v is not None],
                [v for v in vectors if v is not None],
            )
            new = [node for node in nodes if node.id not in stored]
            next_node = last_node + len(new)
            numbers = dict(zip((node.id for node in new), range(last_node + 1, next_node + 1), strict=True))
            connection.executemany(
                statements.INSERT_NODE,
                ((numbers[n.id], number, *_history(n, now_ms), *_content(n), places.get(n.id)) for n in new),
            )
            again = ((node, *stored[node.id][:3]) for node in nodes if node.id in stored)
            updates = [
                (*_content(node), now_ms, places.get(node.id, place if text == node.text else None), of_node)
                for node, of_node, place, text in again
            ]
            numbers.update((id, row[0]) for id, row in stored.items())
            connection.executemany(statements.UPDATE_NODE, updates)
            connection.executemany(
                statements.INSERT_FIELD,
                ((key, value, numbers[n.id]) for n in nodes for key, value in field_rows(n.metadata)),
            )
            if updates:
                connection.execute(statements.FORGET_CHANGES)
            words += _index(connection, [*rewritten, *range(last_node + 1, next_node + 1)])
            connection.execute(statements.UPDATE_NAMESPACE, (next_node, len(new), words, len(rewritten), number))
        return [node.id for node in new]

    def _own_namespace(self, connection: apsw.Connection) -> tuple[int, int]:
        """Return the number of this namespace and of its last node, making the namespace if it is new."""
        row = row_of(connection, statements.SELECT_NAMESPACE, (self._namespace,))
        number, last_node = row or row_of(connection, statements.INSERT_NAMESPACE, (self._namespace,))
        return number, last_node

    def _insert_vectors(
        self, connection: apsw.Connection, ids: Sequence[str], vectors: Sequence[Vector]
    ) -> dict[str, int]:
        """Store the vectors of these nodes and return the place of each by its id."""
        if not ids:
            return {}
        layout = read_layout(connection)
        assert layout is not None  # adopt comes first
        places: list[int] = []
        for start in range(0, len(ids), _VECTORS_AT_ONCE):
            keys = [vector_key(self._namespace, id) for id in ids[start : start + _VECTORS_AT_ONCE]]
            some = unit(np.stack(vectors[start : start + _VECTORS_AT_ONCE]))
            places += insert_vectors(connection, layout, keys, some)
        return dict(zip(ids, places, strict=True))

    def _drop_vectors(self, connection: apsw.Connection, owners: Iterable[tuple[str, int | None]]) -> None:
        dropped = [(id, place) for id, place in owners if place is not None]
        if not dropped:
            return
        layout = read_layout(connection)
        assert layout is not None  # or there would be no places
        keys = [vector_key(self._namespace, id) for id, _ in dropped]
        delete_vectors(connection, layout, keys, [place for _, place in dropped])

    @staticmethod
    def _drop_fields(connection: apsw.Connection, owners: Iterable[tuple[int, str]]) -> None:
        connection.executemany(
            statements.DELETE_FIELD,
            ((key, value, node) for node, metadata in owners for key, value in field_rows(json.loads(metadata))),
        )

    def put_vectors(self, ids: Sequence[str], texts: Sequence[str], vectors: Vector) -> int:
        with self._database.transaction() as connection:
            number, _ = self._own_namespace(connection)
            rows = connection.execute(statements.SELECT_STORED, (json.dumps(list(ids)), number))
            waiting = {id: node for id, node, place, text, *_ in rows if place is None and text == texts[ids.index(id)]}
            given = [i for i, id in enumerate(ids) if id in waiting]
            places = self._insert_vectors(connection, [ids[i] for i in given], list(vectors[given]))
            connection.executemany(statements.UPDATE_PLACE, [(place, waiting[id]) for id, place in places.items()])
            connection.execute(statements.FORGET_CHANGES)
            return len(places)

    def delete(self, ids: Sequence[str]) -> list[tuple[str, Tier]]:
        with self._database.transaction() as connection:
            return self._delete(connection, list(dict.fromkeys(ids)))

    def delete_where(self, scope: Scope) -> list[tuple[str, Tier]]:
        with self._database.transaction() as connection:
            if not self._exists(connection):
                return []
            where, values = _condition(scope)
            select = statements.SELECT_IDS.format(where=where)
            rows = connection.execute(select, (*node_range(self._number), *values))
            return self._delete(connection, [row[0] for row in rows])

    def _delete(self, connection: apsw.Connection, ids: list[str]) -> list[tuple[str, Tier]]:
        if not self._exists(connection):
            return []
        rows = rows_of(connection, statements.SELECT_STORED, (json.dumps(ids), self._number))
        nodes = [row[1] for row in rows]
        words = _unindex(connection, nodes)
        self._drop_fields(connection, [(row[1], row[4]) for row in rows])
        self._drop_vectors(connection, [(row[0], row[2]) for row in rows])
        connection.execute(statements.DELETE_NODES, (json.dumps(nodes),))
        connection.execute(statements.FORGET_CHANGES)
        connection.execute(statements.UPDATE_NAMESPACE, (0, -len(nodes), -words, len(nodes), self._number))
        return [(row[0], row[5]) for row in rows]

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, ids: Sequence[str]) -> list[Node]:
        with self._database.reading() as connection:
            if not self._exists(connection):
                return []
            return self._nodes(connection.execute(statements.SELECT_NODES_BY_ID, (json.dumps(list(ids)), self._number)))

    def nodes(self, keys: Sequence[int]) -> list[Node]:
        with self._database.reading() as connection:
            return self._nodes(self._rows(connection, statements.SELECT_NODES_BY_NUMBER, keys))

    def _nodes(self, rows: Iterable[Any]) -> list[Node]:
        return [node_of(row, self._namespace) for row in rows]

    def select(self, scope: Scope, *, limit: int, after: str | None, newest_first: bool = False) -> list[Node]:
        with self._database.reading() as connection:
            if not self._exists(connection):
                return []
            lowest, highest = node_range(self._number)
            where, values = _condition(scope)
            if newest_first:
                node, written = (_PAST_ALL, _PAST_ALL) if after is None else self._place_of(connection, after)
                select = statements.LIST_NEWEST_NODES.format(where=where)
                return self._nodes(connection.execute(select, (lowest, highest, written, node, *values, limit)))
            if after is not None:
                lowest, _ = self._place_of(connection, after)
            select = statements.LIST_NODES.format(where=where)
            return self._nodes(connection.execute(select, (lowest, highest, *values, limit)))

    def _place_of(self, connection: apsw.Connection, id: str) -> tuple[int, int]:
        """Return the number of a node, and when it was written last."""
        row = row_of(connection, statements.SELECT_PLACE_IN_LIST, (self._number, id))
        if row is None:
            raise NodeNotFoundError(f"There is no node {id!r} to go on after; start again without `after`.")
        node, written = row
        return node, written

    def count(self, scope: Scope) -> int:
        with self._database.reading() as connection:
            if not self._exists(connection):
                return 0
            where, values = _condition(scope)
            if scope.where is None:
                select, owner = statements.COUNT_IN_TIERS, [self._number]
            else:
                select, owner = statements.COUNT_NODES, [*node_range(self._number)]
            (count,) = row_of(connection, select.format(where=where), (*owner, *values))
            return int(count)

    def pending(self, *, limit: int, after: str | None) -> list[Node]:
        with self._database.reading() as connection:
            if not self._exists(connection):
                return []
            lowest = 0 if after is None else self._place_of(connection, after)[0]
            return self._nodes(connection.execute(statements.SELECT_PENDING, (self._number, lowest, limit)))

    # -- search -------------------------------------------------------------------------------------------------

    def candidates(self, scope: Scope, *, vector: Vector | None, question: str | None, n: int, k: int) -> Candidates:
        with self._database.reading() as connection:
            if not self._exists(connection):
                return _NO_CANDIDATES
            while (state := self._index.state(connection)) is None:
                self._database.renew(connection)  # another thread has seen a later commit already
            eligible = self._eligible(connection, state, scope)
            query = None if vector is None or state.layout is None else unit(vector)
            cosines = np.full(len(state.nodes), np.nan)
            near, said = _NOWHERE, _NOWHERE
            words: Words | None = None
            if query is not None:
                near = self._nearest(connection, state, query, eligible, n, k, cosines)
            if question is not None:
                words = self._keywords.words(connection, question, state.version)
                said = self._keywords.candidates(connection, state, words, eligible, n)
            found = np.union1d(near, said)
            if len(found) < k:
                found = np.concatenate([found, _newest(state, eligible, found, k - len(found))])
            if not len(found):
                return _NO_CANDIDATES
            nodes = state.nodes[found].tolist()
            keyword = coverage = np.full(len(found), np.nan)
            if words is not None and words.terms:
                texts = dict(self._rows(connection, statements.SELECT_TEXT_HASHES, nodes))
                keyword, coverage = self._keywords.scores(connection, texts, words)
            if query is not None:
                self._measure(connection, state, query, found[np.isnan(cosines[found])], cosines)
            return Candidates(
                keys=nodes,
                semantic=cosines[found],
                keyword=keyword,
                coverage=coverage,
                origins=lambda at: self._rows(connection, statements.SELECT_ORIGINS, [nodes[i] for i in at]),
            )

    def _eligible(self, connection: apsw.Connection, state: IndexState, scope: Scope) -> NDArray[np.bool_] | None:
        """Return for each position whether its node is in the scope; None if all are."""
        if scope.where is None:
            return None if state.all_in(scope.tiers) else state.in_tiers(scope.tiers)
        rows = rows_of(connection, *compile_numbers(scope.where, *node_range(self._number)))
        eligible = np.zeros(len(state.nodes), dtype=bool)
        eligible[state.positions_of(np.array([node for (node,) in rows], dtype=np.int64))] = True
        return eligible if state.all_in(scope.tiers) else eligible & state.in_tiers(scope.tiers)

    def _nearest(
        self,
        connection: apsw.Connection,
        state: IndexState,
        query: Vector,
        eligible: NDArray[np.bool_] | None,
        n: int,
        k: int,
        cosines: NDArray[np.float64],
    ) -> Positions:
        """Return the positions of the `n` nearest eligible vectors, in no order, noting the cosines it learns.

        Vectors are read in the order of their estimates, `n` and then those that are not very likely farther than the
        `k` nearest of them.
        """
        read, seen = _NOWHERE, np.empty(0, dtype=np.float32)
        least = -np.inf
        for nominated, estimates in state.nominate(query, eligible, n):
            at = 0
            while at < (likely := int(np.count_nonzero(estimates >= least))):
                step = slice(at, min(likely, at + max(n, len(read) // 2)))
                self._measure(connection, state, query, nominated[step], cosines)
                read, seen = np.concatenate([read, nominated[step]]), np.concatenate([seen, estimates[step]])
                least = _least_estimate(cosines[read], seen, k)
                at = step.stop
            if likely < len(nominated) // 2:  # else some of the next ones may be likely too
                break
        return _best_of(read, cosines, n)

    @staticmethod
    def _measure(
        connection: apsw.Connection,
        state: IndexState,
        query: Vector,
        positions: Positions,
        cosines: NDArray[np.float64],
    ) -> None:
        """Note the cosine of the query with the vectors at these positions; without a vector it stays NaN."""
        there = positions[state.places[positions] != NO_PLACE]
        if state.layout is not None and len(there):
            cosines[there] = state.layout.cosines(read_vectors(connection, state.layout, state.places[there]), query)

    def _rows(self, connection: apsw.Connection, select: str, nodes: Sequence[int]) -> list[Any]:
        """Return what a statement selects of each of these nodes, which the index lists."""
        rows = rows_of(connection, select, (json.dumps(nodes),))
        if len(rows) != len(nodes):
            raise StoreCorruptError(f"{self.location}: an index lists nodes that are not there; run rlm-memory check.")
        return rows

    def vectors(self, keys: Sequence[int]) -> Vector:
        with self._database.reading() as connection:
            layout = read_layout(connection)
            rows = rows_of(connection, statements.SELECT_PLACES, (json.dumps(list(keys)),))
            vectors = np.full((len(keys), layout.dimensions if layout else 0), np.nan, dtype=np.float32)
            if layout is not None:
                present = [i for i, (place,) in enumerate(rows) if place is not None]
                vectors[present] = read_vectors(connection, layout, [rows[i][0] for i in present])
            return vectors

    def vectors_of(self, ids: Sequence[str]) -> list[Vector | None]:
        with self._database.reading() as connection:
            if not self._exists(connection):
                return [None] * len(ids)
            stored = {
                row[0]: row[1]
                for row in connection.execute(statements.SELECT_STORED, (json.dumps(list(ids)), self._number))
            }
            rows = self.vectors([stored.get(id, -1) for id in ids])
            return [None if not row.size or np.isnan(row[0]) else row for row in rows]

    def known_vectors(self, texts: Iterable[str]) -> Mapping[str, Vector]:
        asked = {text_hash(text): text for text in texts}
        with self._database.reading() as connection:
            layout = read_layout(connection)
            if layout is None or not self._exists(connection):
                return {}
            rows = rows_of(
                connection, statements.SELECT_TEXT_OWNERS, (json.dumps(list(asked)), *node_range(self._number))
            )
            # Two texts may share a hash.
            places = {text: place for text, place in rows if asked.get(text_hash(text)) == text}
            return dict(zip(places, read_vectors(connection, layout, list(places.values())), strict=True))

    # -- a change of the embedding model ------------------------------------------------------------------------

    def begin_change(self, new: NewModel) -> None:
        with self._database.transaction() as connection:
            if not is_under_way(_meta(connection), new):  # what another model has left behind is of no use
                connection.execute("DELETE FROM new_vectors")
                connection.executemany(statements.PUT_META, rows_of_change(new))

    def outdated(self, new: NewModel, *, limit: int) -> list[tuple[int, str]]:
        with self._database.reading() as connection:
            if is_finished(_meta(connection), new, self.location):
                return []
            return rows_of(connection, statements.SELECT_OUTDATED, (BLANKS, limit))

    def count_outdated(self) -> int:
        with self._database.reading() as connection:
            (count,) = row_of(connection, statements.COUNT_OUTDATED, (BLANKS,))
        return int(count)

    def put_new_vectors(self, new: NewModel, keys: Sequence[int], texts: Sequence[str], vectors: Vector) -> None:
        rows = [
            (key, text_hash(text), vector.tobytes())
            for key, text, vector in zip(keys, texts, unit(vectors), strict=True)
        ]
        with self._database.transaction() as connection:
            if not is_finished(_meta(connection), new, self.location):
                connection.executemany(statements.PUT_NEW_VECTOR, rows)

    def replace_vectors(self, new: NewModel) -> bool:
        with self._database.transaction() as connection:
            if is_finished(_meta(connection), new, self.location):
                return True
            if rows_of(connection, statements.SELECT_OUTDATED, (BLANKS, 1)):
                return False
            connection.execute("DROP TABLE IF EXISTS node_embeddings")
            connection.execute("DELETE FROM vector_signs")
            layout = self._create_vectors(connection, new.dimensions)
            connection.execute(statements.FORGET_PLACES)
            after = -1
            while rows := rows_of(connection, statements.SELECT_NEW_VECTORS, (after, _BATCH)):
                vectors = np.stack([np.frombuffer(stored, dtype=np.float32) for *_, stored in rows])
                self._refill(connection, layout, rows, vectors)
                after = rows[-1][0]
            connection.execute("DELETE FROM new_vectors")
            connection.executemany(statements.DELETE_META, [(key,) for key in CHANGE_KEYS])
            connection.execute(statements.PUT_META, ("embedding_model", new.model))
            connection.execute(statements.KEEP_LAST_CHANGE)
            return True

    @staticmethod
    def _refill(
        connection: apsw.Connection, layout: VectorFormat, owners: Sequence[tuple[Any, ...]], vectors: Vector
    ) -> None:
        """Store the unit vectors of the nodes given as (node, namespace, id, ...) after those that are there."""
        places = insert_vectors(connection, layout, [vector_key(name, id) for _, name, id, *_ in owners], vectors)
        nodes = [node for node, *_ in owners]
        connection.executemany(statements.UPDATE_PLACE, zip(places, nodes, strict=True))

    # -- the file -----------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        with self._database.reading() as connection:
            number = self._number if self._exists(connection) else None
            return measure(connection, self.location, self._namespace, number)

    def check(self) -> CheckReport:
        with self._database.exclusive() as connection:
            return CheckReport(tuple(find_problems(connection)))

    def backup(self, path: str | PathLike[str]) -> None:
        self._database.backup(path)

    def compact(self) -> None:
        with self._database.transaction() as connection:
            layout = read_layout(connection)
            if layout is not None:
                self._rebuild(connection, layout)
            connection.execute("INSERT INTO nodes_fts (nodes_fts) VALUES ('optimize')")
            connection.execute(statements.KEEP_LAST_CHANGE)
        with self._database.exclusive() as connection:
            connection.execute("VACUUM")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _rebuild(self, connection: apsw.Connection, layout: VectorFormat) -> None:
        """Lay the vectors out anew: vec0 gives back the room of a vector only when its whole chunk is empty."""
        owners = rows_of(connection, statements.SELECT_OWNERS)
        connection.execute("CREATE TABLE moved_chunks (chunk INTEGER PRIMARY KEY, vectors BLOB)")
        connection.execute(statements.MOVE_CHUNKS)
        connection.execute("DROP TABLE node_embeddings")
        connection.execute("DELETE FROM vector_signs")
        connection.execute(layout.create_table)
        for start in range(0, len(owners), _BATCH):
            batch = owners[start : start + _BATCH]
            vectors = read_vectors(connection, layout, [place for *_, place in batch], table="moved_chunks")
            self._refill(connection, layout, batch, vectors)
        connection.execute("DROP TABLE moved_chunks")

    def close(self) -> None:
        self._database.close()


def _content(node: Node) -> tuple[Any, ...]:
    """Return the columns that every `add` of a node writes."""
    return (
        node.type, node.subtype, float(node.confidence), node.provenance, text_hash(node.text),
        _to_json(node.metadata), node.text, segment(node.text),
    )  # fmt: skip


def _history(node: Node, now_ms: int) -> tuple[Any, ...]:
    """Return the columns that a node gets once and keeps."""
    return (
        node.id, node.tier, now_ms,
        milliseconds(node.created_at) if node.created_at else now_ms,
        milliseconds(node.updated_at) if node.updated_at else now_ms,
        milliseconds(node.last_accessed) if node.last_accessed else None,
        node.access_count, node.pinned,
    )  # fmt: skip


def _condition(scope: Scope) -> tuple[str, list[SQLValue]]:
    """Return the scope as a condition on `nodes n`."""
    where, values = compile_filter(scope.where)
    if set(scope.tiers) == set(TIERS):
        return where, values
    return f"n.tier IN (SELECT value FROM json_each(?)) AND {where}", [json.dumps(scope.tiers), *values]


def _least_estimate(measured: NDArray[np.float64], seen: NDArray[np.float32], k: int) -> float:
    """Return the estimate below which a vector is hardly one of the `k` nearest, having read others.

    It would have to lie more than 4 standard deviations of the error seen above its estimate.

    Args:
        measured: The cosines of those that were read.
        seen: Their estimates, which cosines are proportional to.
        k: How many are wanted.
    """
    slope = measured @ seen / (seen @ seen or np.nan)
    if len(measured) < k or not slope > 0:  # such estimates tell nothing
        return -np.inf
    errors = measured - slope * seen
    error = np.sqrt(errors @ errors / len(errors))
    return float((np.partition(measured, -k)[-k] - 4 * error) / slope)


def _best_of(positions: Positions, cosines: NDArray[np.float64], n: int) -> Positions:
    """Return those `n` of the positions that have the greatest cosines, in no order."""
    return positions if len(positions) <= n else positions[np.argpartition(cosines[positions], -n)[-n:]]


def _meta(connection: apsw.Connection) -> dict[str, Any]:
    return dict(rows_of(connection, statements.SELECT_META))


def _newest(state: IndexState, eligible: NDArray[np.bool_] | None, found: Positions, n: int) -> Positions:
    """Return the positions of the `n` newest eligible nodes that were not found."""
    free = np.ones(len(state.nodes), dtype=bool) if eligible is None else eligible.copy()
    free[found] = False
    return np.flatnonzero(free)[-n:]


def _index(connection: apsw.Connection, nodes: Sequence[int]) -> int:
    """Put the texts of these nodes into the keyword index; return how many tokens they have."""
    wanted = (json.dumps(list(nodes)),)
    connection.execute(statements.INDEX_NODES, wanted)
    return sum(length_of(size) for (size,) in connection.execute(statements.SELECT_LENGTHS, wanted))


def _unindex(connection: apsw.Connection, nodes: Sequence[int]) -> int:
    """Take the texts of these nodes out of the keyword index; return how many tokens they had."""
    wanted = (json.dumps(list(nodes)),)
    words = sum(length_of(size) for (size,) in connection.execute(statements.SELECT_LENGTHS, wanted))
    connection.execute(statements.UNINDEX_NODES, wanted)
    return words


_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_BATCH: Final = 1000
_VECTORS_AT_ONCE: Final = 64
"""So many vectors of 1,536 floats stay in the processor's cache while they are scaled and written."""
_PAST_ALL: Final = 2**63 - 1
_NOWHERE: Final[Positions] = np.empty(0, dtype=np.intp)
_NO_CANDIDATES: Final = Candidates([], np.empty(0), np.empty(0), np.empty(0), lambda _: [])
