"""What is held in memory of one namespace: for each node its tier and place, and a sketch of its vector.

The sketch is what a search scans: the sign bits of long vectors (192 bytes for 1,536 components), the vectors
themselves where they are short. It only nominates candidates; their scores come from the vectors in the file. Every
search first compares three numbers with the file, in its own snapshot: the index is never older than a commit that
the caller has seen, whichever process made it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from rlm_memory.engines.sqlite import statements
from rlm_memory.engines.sqlite.connection import row_of, rows_of
from rlm_memory.engines.sqlite.hamming import differences
from rlm_memory.engines.sqlite.vectors import VectorFormat, packed_signs, read_layout
from rlm_memory.errors import StoreCorruptError
from rlm_memory.forks import renewed_in_child
from rlm_memory.ports import Vector
from rlm_memory.records import TIERS

Positions: TypeAlias = NDArray[np.intp]
"""Rows of the index."""

NO_PLACE: Final = -1
_GONE: Final = 255
_TIER_CODES: Final[dict[str, int]] = {tier: code for code, tier in enumerate(TIERS)}

_SURVIVORS: Final = 400
"""At least so many are left after the scan of the bits."""

_WIDER: Final = 64
"""Where these do not suffice, so many times as many are looked at: of vectors without any clusters, what the signs
tell is little more than chance."""

_MOST_NOMINATED: Final = 4000
"""But no more than so many are nominated then, unless more are wanted: reading them takes 40 ms."""

_CHUNKS_AT_ONCE: Final = 1024
"""What is read of a chunk is held twice while it is copied."""


@dataclass(frozen=True, slots=True)
class Version:
    """Which state of the file an index shows, and the sums of the namespace that change with it."""

    changes: int
    last_node: int
    nodes: int
    words: int
    texts_gone: int


class Nominated(NamedTuple):
    """Positions that may hold the nearest vectors, the likeliest first, and what their cosine is proportional to."""

    positions: Positions
    estimates: NDArray[np.float32]


class WholeVectors:
    """Short vectors, held as they are."""

    def __init__(self, rows: Vector) -> None:
        self.rows = rows

    def nominate(self, query: Vector, positions: Positions | None, n: int) -> Iterator[Nominated]:
        """Yield the `n` nearest positions, exactly."""
        products = (self.rows if positions is None else self.rows[positions]) @ query
        yield _best(_greatest(products, n), products, positions)


class SignBits:
    """The signs of long vectors, packed into 64-bit words."""

    def __init__(self, rows: NDArray[np.uint64]) -> None:
        self.rows = rows

    def nominate(self, query: Vector, positions: Positions | None, n: int) -> Iterator[Nominated]:
        """Yield many times `n` positions, those whose signs differ least from the query's, then many more.

        Keeping the query finer than the stored bits (asymmetric distance, Jegou, Douze and Schmid 2011) sorts them far
        better than the number of differing signs does.
        """
        digits = _binary_digits(query)
        for survivors in self._by_differences(digits[:1], positions, max(_SURVIVORS, 10 * n)):
            # The product of the signs, as +1 and -1, with the query's numbers, over the most that it can be.
            differing = differences(self.rows[survivors], digits).astype(np.float32)
            estimates = 1 - _PLACE_VALUES @ differing / (len(query) / 2)
            yield _best(_greatest(estimates, max(_MOST_NOMINATED, n)), estimates, survivors)

    def _by_differences(self, signs: NDArray[np.uint64], positions: Positions | None, n: int) -> Iterator[Positions]:
        """Yield the positions whose signs differ least, `n` and all as near as the last; then more."""
        count = len(self.rows) if positions is None else len(positions)
        if count <= n:
            yield np.arange(count) if positions is None else positions
            return
        (differing,) = differences(self.rows if positions is None else self.rows[positions], signs)
        up_to = np.cumsum(np.bincount(differing))
        least, most = (int(np.searchsorted(up_to, wanted)) for wanted in (n, min(_WIDER * n, count)))
        found = np.flatnonzero(differing <= least)
        yield found if positions is None else positions[found]
        found = np.flatnonzero((differing > least) & (differing <= most))
        yield found if positions is None else positions[found]


_PLACES: Final = 8
_PLACE_VALUES: Final[Vector] = (2.0 ** np.arange(_PLACES - 1, -1, -1) / (2**_PLACES - 1)).astype(np.float32)


def _binary_digits(query: Vector) -> NDArray[np.uint64]:
    """Return the numbers of a query in the binary digits +1 and -1, packed: shape (places, words), the signs first.

    A number is rounded to the nearest odd one of -255, -253, … 255, where 255 is that which is farthest from 0. The
    product of such a query with signs is a sum over its places, each from the number of differing bits.
    """
    half = 2 ** (_PLACES - 1)
    steps = np.ceil(query * (half / np.abs(query).max())) + (half - 1)  # 0 is a negative one, as in what is stored
    levels = np.maximum(steps, 0).astype(np.uint8)
    return packed_signs(levels & (1 << np.arange(_PLACES - 1, -1, -1, dtype=np.uint8))[:, np.newaxis]).view(np.uint64)


def _best(chosen: Positions, estimates: NDArray[np.float32], positions: Positions | None) -> Nominated:
    """Return the chosen ones, the greatest estimate first, by the positions that they stand for."""
    chosen = chosen[np.argsort(-estimates[chosen], kind="stable")]
    return Nominated(chosen if positions is None else positions[chosen], estimates[chosen])


def _greatest(values: NDArray[np.floating], n: int) -> Positions:
    """Return the indexes of the `n` greatest values, in no order."""
    return np.arange(len(values)) if len(values) <= n else np.argpartition(values, -n)[-n:]


@dataclass(frozen=True, slots=True)
class IndexState:
    """The index as of one state of the file; never changed once it is made.

    `nodes` ascends. `tiers` holds the position of the tier in TIERS, or 255 for a node that is gone; `places` is -1
    for a node without a vector.
    """

    version: Version
    layout: VectorFormat | None
    nodes: NDArray[np.int64]
    tiers: NDArray[np.uint8]
    places: NDArray[np.int64]
    sketch: SignBits | WholeVectors | None
    tier_counts: list[int]
    with_vector: int

    def positions_of(self, nodes: NDArray[np.int64]) -> Positions:
        """Return the positions of these nodes; those that are not (or no longer) here are left out."""
        found = np.searchsorted(self.nodes, nodes)
        inside = found < len(self.nodes)
        found, nodes = found[inside], nodes[inside]
        here: Positions = found[self.nodes[found] == nodes]
        alive: Positions = here[self.tiers[here] != _GONE]
        return alive

    def all_in(self, tiers: Sequence[str]) -> bool:
        """Return whether every position holds a node in one of these tiers."""
        return bool(sum(self.tier_counts[_TIER_CODES[tier]] for tier in tiers) == len(self.nodes))

    def nominate(self, query: Vector, eligible: NDArray[np.bool_] | None, n: int) -> Iterator[Nominated]:
        """Yield positions that may hold the `n` nearest eligible vectors, exactly `n` where vectors are held whole.

        Where they are held as signs, the likeliest come first, and each batch is likelier than the next.
        """
        if self.sketch is None or not self.with_vector:
            return iter(())
        if eligible is None and self.with_vector == len(self.nodes):
            return self.sketch.nominate(query, None, n)
        here = self.places != NO_PLACE
        return self.sketch.nominate(query, np.flatnonzero(here if eligible is None else here & eligible), n)

    def in_tiers(self, tiers: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each position whether its node is in one of these tiers."""
        chosen = np.zeros(256, dtype=bool)
        chosen[[_TIER_CODES[tier] for tier in tiers]] = True
        return chosen[self.tiers]


class NodeIndex:
    """The index of one namespace of one file, kept up to date by whoever searches."""

    def __init__(self, namespace: int) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._state: IndexState | None = None
        self._buffer: NDArray[np.generic] | None = None  # the sketch's rows, with room for more
        renewed_in_child(self)

    def after_fork_in_child(self) -> None:
        """A thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def state(self, connection: apsw.Connection) -> IndexState | None:
        """Return the index as this connection's snapshot of the file has it; None if it is ahead of the snapshot."""
        version = Version(*row_of(connection, statements.SELECT_VERSION, (self._namespace,)))
        state = self._state
        if state is not None and state.version == version:
            return state
        with self._lock:
            state = self._state
            layout = read_layout(connection)
            if state is None or state.layout != layout or not _reaches_back(connection, state.version):
                state = self._load(connection, layout, version)
            elif version.changes > state.version.changes or version.last_node > state.version.last_node:
                state = self._follow(connection, state, version)
            self._state = state
            return state if state.version == version else None

    def _load(self, connection: apsw.Connection, layout: VectorFormat | None, version: Version) -> IndexState:
        nodes, tiers, places = _columns(connection.execute(statements.SELECT_INDEX, (self._namespace,)))
        by_node = np.argsort(nodes, kind="stable")
        nodes, tiers, places = nodes[by_node], tiers[by_node], places[by_node]
        self._buffer = None if layout is None else _sketch_rows(connection, layout, places)
        return self._made(version, layout, nodes, tiers, places)

    def _follow(self, connection: apsw.Connection, known: IndexState, version: Version) -> IndexState:
        """Return the known state with the nodes that were added and changed since."""
        added = rows_of(connection, statements.SELECT_ADDED, (known.version.last_node, version.last_node))
        new_nodes, new_tiers, new_places = _columns(added)
        nodes = np.concatenate([known.nodes, new_nodes])
        tiers = np.concatenate([known.tiers, new_tiers])
        places = np.concatenate([known.places, new_places])
        stale = np.arange(len(known.nodes), len(nodes))
        if version.changes > known.version.changes:
            changed = rows_of(
                connection,
                statements.SELECT_CHANGED,
                (known.version.changes, version.changes, *node_range(self._namespace)),
            )
            changed_nodes, new_tiers, new_places = _columns(changed)
            where = np.searchsorted(nodes, changed_nodes)
            here = where < len(nodes)
            here[here] = nodes[where[here]] == changed_nodes[here]  # one may have come and gone in between
            tiers[where[here]], places[where[here]] = new_tiers[here], new_places[here]
            stale = np.union1d(stale, where[here])
        if known.layout is not None and len(stale):
            stale = stale[places[stale] != NO_PLACE]
            self._make_room(len(nodes))[stale] = _sketch_rows(connection, known.layout, places[stale])
        return self._made(version, known.layout, nodes, tiers, places)

    def _make_room(self, rows: int) -> NDArray[np.generic]:
        buffer = self._buffer
        assert buffer is not None
        if len(buffer) < rows:
            grown = np.zeros((max(rows, len(buffer) * 5 // 4), buffer.shape[1]), dtype=buffer.dtype)
            grown[: len(buffer)] = buffer
            buffer = self._buffer = grown
        return buffer

    def _made(
        self,
        version: Version,
        layout: VectorFormat | None,
        nodes: NDArray[np.int64],
        tiers: NDArray[np.uint8],
        places: NDArray[np.int64],
    ) -> IndexState:
        sketch: SignBits | WholeVectors | None = None
        if layout is not None and self._buffer is not None:
            rows = self._buffer[: len(nodes)]
            sketch = SignBits(rows.view(np.uint64)) if layout.scanned_as_signs else WholeVectors(rows.view(np.float32))
        counts = np.bincount(tiers, minlength=len(TIERS)).tolist()
        return IndexState(
            version, layout, nodes, tiers, places, sketch, counts, int(np.count_nonzero(places != NO_PLACE))
        )


def node_range(namespace: int) -> tuple[int, int]:
    """Return the lowest and the highest number a node of this namespace can have."""
    return namespace << 40, ((namespace + 1) << 40) - 1


def _reaches_back(connection: apsw.Connection, known: Version) -> bool:
    """Return whether the list of changes still holds all that came after the known state."""
    (oldest,) = row_of(connection, statements.SELECT_OLDEST_CHANGE)
    return oldest is None or int(oldest) <= known.changes + 1


def _columns(
    rows: Iterable[tuple[int, str | None, int | None]],
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64]]:
    """Return rows of (node, tier, place) as three arrays; a node without a tier is gone.

    Raises:
        StoreCorruptError: There is something in them that the schema does not let in.
    """
    try:
        table = np.fromiter(  # as they come: a list of 300,000 rows would take 60 MB
            (
                (node, _GONE if tier is None else _TIER_CODES[tier], NO_PLACE if place is None else place)
                for node, tier, place in rows
            ),
            dtype=[("node", np.int64), ("tier", np.uint8), ("place", np.int64)],
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StoreCorruptError(
            f"The database is damaged: {error} in the index of nodes; run rlm-memory check, and restore a backup."
        ) from error
    return table["node"].copy(), table["tier"].copy(), table["place"].copy()


def _sketch_rows(connection: apsw.Connection, layout: VectorFormat, places: NDArray[np.int64]) -> NDArray[np.generic]:
    """Return a row of the sketch for each place; zeros where there is no vector."""
    by_place = np.argsort(places, kind="stable")
    by_place = by_place[np.searchsorted(places[by_place], NO_PLACE, side="right") :]
    numbers, offsets = np.divmod(places[by_place], layout.chunk)
    chunks = np.unique(numbers)
    rows = np.zeros((len(places), _sketch_width(layout)), dtype=np.uint64 if layout.scanned_as_signs else np.float32)
    for start in range(0, len(chunks), _CHUNKS_AT_ONCE):
        some = chunks[start : start + _CHUNKS_AT_ONCE]
        first, last = np.searchsorted(numbers, some[0]), np.searchsorted(numbers, some[-1], side="right")
        at = np.searchsorted(some, numbers[first:last]) * layout.chunk + offsets[first:last]
        rows[by_place[first:last]] = _read_chunks(connection, layout, some)[at]
    return rows


def _sketch_width(layout: VectorFormat) -> int:
    """Return how many 64-bit words, or floats, a row of the sketch has."""
    return -(-layout.dimensions // 64) if layout.scanned_as_signs else layout.dimensions


def _read_chunks(connection: apsw.Connection, layout: VectorFormat, chunks: NDArray[np.int64]) -> NDArray[np.generic]:
    """Return the rows of the sketch for all places of these chunks, in order: shape (places, width).

    Raises:
        StoreCorruptError: There is less of a chunk, or more, than there should be.
    """
    select = statements.SELECT_SIGNS if layout.has_signs else statements.SELECT_CHUNKS
    wanted = set(chunks.tolist())
    bounds = int(chunks[0]), int(chunks[-1])
    stored = b"".join(bits for chunk, bits in connection.execute(select, bounds) if chunk in wanted)
    width = 8 * _sketch_width(layout) if layout.has_signs else layout.width
    if len(stored) != len(chunks) * layout.chunk * width:
        raise StoreCorruptError(
            "The database is damaged: vectors are missing; run rlm-memory check, and restore a backup."
        )
    if not layout.scanned_as_signs:
        return layout.decode(stored)
    packed = np.frombuffer(stored, dtype=np.uint8).reshape(-1, width)
    missing = -packed.shape[1] % 8
    return (np.pad(packed, ((0, 0), (0, missing))) if missing else packed).view(np.uint64)
