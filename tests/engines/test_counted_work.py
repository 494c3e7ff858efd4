"""How much work a call is, counted and not timed: statements, pages of the file, vectors read.

The bounds are what was measured and some room; they are there so that work which grows is seen before anybody waits for
it. Counts that must not depend on the size of a store are compared between two sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import numpy as np
import pytest

from rlm_memory import Memory

DIMENSIONS = 768
GROUPS = 100
SMALL, LARGE = 500, 2000


@dataclass
class Work:
    """What was done: statements of ours, statements in all (those of FTS5 and vec0 too), pages, vectors read."""

    statements: list[str] = field(default_factory=list)
    inner: int = 0
    pages: int = 0
    vectors: int = 0


class Counter:
    """Counts the work of every connection that is opened while it is hooked in."""

    def __init__(self) -> None:
        self._connections: list[apsw.Connection] = []
        self._work = Work()

    def hook(self, connection: apsw.Connection) -> None:
        self._connections.append(connection)
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, self._note, id=self)

    def _note(self, event: dict[str, Any]) -> None:
        if event["trigger"]:
            self._work.inner += 1
        else:
            self._work.statements.append(event["sql"])

    def _pages(self) -> int:
        pages = 0
        for connection in self._connections:
            with suppress(apsw.ConnectionClosedError):
                pages += connection.status(apsw.SQLITE_DBSTATUS_CACHE_HIT)[0]
                pages += connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS)[0]
        return pages

    def _called(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and isinstance(getattr(called, "__self__", None), apsw.Blob):
            self._work.vectors += called.__name__ in ("read", "read_into")

    @contextmanager
    def counting(self) -> Iterator[Work]:
        """Count what the block does."""
        work = self._work = Work()
        pages = self._pages()
        before = sys.getprofile()
        sys.setprofile(self._called)
        try:
            yield work
        finally:
            sys.setprofile(before)
            work.pages = self._pages() - pages
            self._work = Work()

    def of(self, call: Callable[[], object]) -> Work:
        """Return the work of a call that has been made once before, so that what is kept in memory is there."""
        call()
        with self.counting() as work:
            call()
        return work


@pytest.fixture
def counter() -> Iterator[Counter]:
    counter = Counter()
    apsw.connection_hooks.append(counter.hook)
    yield counter
    apsw.connection_hooks.remove(counter.hook)


def vectors(count: int) -> Any:
    """Return vectors in clusters of 25."""
    random = np.random.default_rng(7)
    centres = random.standard_normal((-(-count // 25), DIMENSIONS), dtype=np.float32)
    return centres[np.arange(count) // 25] + random.standard_normal((count, DIMENSIONS), dtype=np.float32)


def texts(count: int) -> list[str]:
    """Return texts of 40 words, of which Zipf's law makes some common and most rare."""
    random = np.random.default_rng(7)
    words = np.minimum(random.zipf(1.3, size=(count, 40)), 20_000)
    return [" ".join(f"word{number}" for number in row) for row in words]


def fill(memory: Memory, count: int) -> None:
    metadatas = [{"group": i % GROUPS} for i in range(count)]
    ids = [f"n{i}" for i in range(count)]
    memory.add(texts(count), ids=ids, metadatas=metadatas, embeddings=vectors(count))


@pytest.fixture(params=[SMALL, LARGE])
def memory(request: pytest.FixtureRequest, tmp_path: Path, counter: Counter) -> Iterator[Memory]:
    with Memory.open(tmp_path / "memory.db", embedder=None) as memory:
        fill(memory, request.param)
        yield memory


def search(memory: Memory, **options: Any) -> Callable[[], object]:
    """Return a search that can be made again and again; it has the same question whatever the store holds."""
    near = vectors(50)[3:5].mean(axis=0)
    question = None if options.get("alpha") == 1 else " ".join(texts(8)[7].split()[:6])
    return lambda: memory.search(question, embedding=near, k=10, **options)


@pytest.mark.parametrize(
    ("options", "most"),
    # with words, at most one for each of the six that the question has
    [({"alpha": 1}, 6), ({"alpha": 0}, 13), ({"alpha": 0.5}, 13), ({"alpha": 1, "where": {"group": 7}}, 7)],
    ids=["dense", "keyword", "hybrid", "filtered"],
)
def test_a_search_runs_few_statements_whatever_the_store_holds(
    memory: Memory, counter: Counter, options: dict[str, Any], most: int
) -> None:
    assert len(counter.of(search(memory, **options)).statements) <= most


def test_a_search_by_vector_reads_the_vectors_of_few_candidates(memory: Memory, counter: Counter) -> None:
    """B126"""
    work = counter.of(search(memory, alpha=1))
    assert 10 <= work.vectors <= 40
    assert work.pages <= 40 + 5 * work.vectors


def test_a_hybrid_search_reads_vectors_of_what_words_have_found_too(memory: Memory, counter: Counter) -> None:
    work = counter.of(search(memory, alpha=0.5))
    assert 10 <= work.vectors <= 130  # 30 by vectors, 100 by words: fewer of these rank worse
    assert work.pages <= 900


def test_a_filtered_search_reads_the_vectors_of_what_passes_and_no_others(memory: Memory, counter: Counter) -> None:
    """B126"""
    passing = memory.count(where={"group": 7})
    work = counter.of(search(memory, alpha=1, where={"group": 7}))
    assert work.vectors <= passing
    assert work.pages <= 40 + 8 * passing


def test_adding_one_costs_the_same_whatever_the_store_holds(memory: Memory, counter: Counter) -> None:
    memory.add(["one"], ids=["one"], embeddings=vectors(1))
    with counter.counting() as work:
        memory.add(["one more"], ids=["another"], embeddings=vectors(1))
    assert len(work.statements) <= 22
    assert work.inner <= 20
    assert work.pages <= 120
    assert work.vectors == 0


def test_a_search_after_an_addition_reads_what_was_added_and_no_more(memory: Memory, counter: Counter) -> None:
    before = counter.of(search(memory, alpha=1))
    memory.add(["one more"], ids=["another"], embeddings=vectors(1))
    with counter.counting() as work:
        search(memory, alpha=1)()
    assert len(work.statements) <= len(before.statements) + 4
    assert work.pages <= before.pages + 40
    assert work.vectors <= before.vectors + 20


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_filling_a_store_costs_as_much_a_node_as_it_grows(tmp_path: Path, counter: Counter, count: int) -> None:
    with Memory.open(tmp_path / "memory.db", embedder=None) as memory, counter.counting() as work:
        fill(memory, count)
    assert len(work.statements) <= 3.4 * count
    assert work.inner <= 1.2 * count
    assert work.pages <= 42 * count


def test_deleting_costs_as_much_a_node_as_the_store_grows(memory: Memory, counter: Counter) -> None:
    with counter.counting() as work:
        memory.delete([f"n{i}" for i in range(100)])
    assert len(work.statements) <= 220
    assert work.inner <= 15 * 100
    assert work.pages <= 60 * 100


def test_opening_and_a_first_search_leave_most_of_the_file_unread(memory: Memory, counter: Counter) -> None:
    work = counter.of(search(memory, alpha=1))
    path = Path(memory.location)
    memory.close()
    for most in (70, 40):  # the first one sweeps, which is due once a day
        with counter.counting() as opening, Memory.open(path, embedder=None) as again:
            search(again, alpha=1)()
        assert len(opening.statements) <= most
        assert opening.pages - work.pages <= 60 + 0.05 * path.stat().st_size / 8192
