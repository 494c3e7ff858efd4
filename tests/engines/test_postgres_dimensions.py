"""Long vectors on a server: which of them an index holds, what it finds, and what is said of longer ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest

from rlm_memory import Memory
from rlm_memory.errors import InvalidInputError
from support import SettableClock

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

COUNT: Final = 400
INDEXES: Final = {
    ("float32", 2001): "halfvec_ip_ops",
    ("float32", 4000): "halfvec_ip_ops",
    ("float32", 4001): None,
    ("int8", 2001): "halfvec_ip_ops",
    ("int8", 4000): "halfvec_ip_ops",
    ("int8", 4001): None,
    ("bit", 2001): "bit_hamming_ops",
    ("bit", 4001): "bit_hamming_ops",
}
"""The operators of the index, by how vectors are kept and how long they are; None where each is compared."""


@pytest.fixture(params=INDEXES, ids=lambda form: f"{form[0]}-{form[1]}")
def form(request: pytest.FixtureRequest) -> tuple[str, int]:
    return request.param  # type: ignore[no-any-return]  # as listed


@pytest.fixture
def filled(form: tuple[str, int], postgres_url: str) -> Iterator[tuple[Memory, Any]]:
    """A store that thinks it has outgrown comparing all, and its vectors, in twenty clusters."""
    storage, dimensions = form
    random = np.random.default_rng(dimensions)
    centres = random.standard_normal((20, dimensions))
    vectors = (centres[np.arange(COUNT) % 20] + random.standard_normal((COUNT, dimensions))).astype(np.float32)
    with Memory.open(postgres_url, embedder=None, embedding_storage=storage, clock=SettableClock()) as memory:
        ids = [f"{i:03}" for i in range(COUNT)]
        metadatas = [{"group": i % 8} for i in range(COUNT)]
        memory.add(["text"] * COUNT, ids=ids, metadatas=metadatas, embeddings=vectors)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("UPDATE rlm_namespaces SET nodes = nodes + 6000")
        memory.compact()
        yield memory, vectors


def index_of(url: str, column: str) -> Any:
    select = f"SELECT {column} FROM pg_stat_user_indexes WHERE indexrelname = 'rlm_node_vectors_nearest'"
    with psycopg.connect(url) as connection:
        row = connection.execute(select.encode()).fetchone()
    return None if row is None else row[0]


def test_long_vectors_are_found_and_a_filter_still_returns_k(
    form: tuple[str, int], filled: tuple[Memory, Any], postgres_url: str
) -> None:
    """What is found is held against what comparing all finds."""
    memory, vectors = filled
    definition = index_of(postgres_url, "pg_get_indexdef(indexrelid)")
    if (operators := INDEXES[form]) is None:
        assert definition is None
    else:
        assert operators in definition
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    found = 0
    for i in range(10):
        asked = vectors[i] + 0.3 * np.random.default_rng(i).standard_normal(form[1])
        cosines = unit @ (asked / np.linalg.norm(asked))
        hits = memory.search(embedding=asked, k=10)
        assert len(hits) == 10
        assert hits[0].id == f"{i:03}"
        assert hits[0].semantic == pytest.approx(cosines[i], abs=2e-3)
        found += len({hit.id for hit in hits} & {f"{j:03}" for j in np.argsort(-cosines)[:10]})
        some = memory.search(embedding=asked, k=10, where={"group": i % 8})
        assert len(some) == 10
        assert all(hit.node.metadata == {"group": i % 8} for hit in some)
        most = memory.search(embedding=asked, k=300, where={"group": {"$lt": 7}})
        assert len(most) == 300
    assert found / 100 >= (1.0 if operators is None else 0.95)
    memory.close()
    if operators is not None:
        tick = threading.Event()
        while index_of(postgres_url, "idx_scan") == 0:  # told when the connection ends; else the time limit of the test
            tick.wait(0.02)


def test_vectors_longer_than_the_server_keeps_are_refused(postgres_url: str) -> None:
    with Memory.open(postgres_url, embedder=None) as memory:
        with pytest.raises(InvalidInputError, match="up to 16000 numbers, got 16001"):
            memory.add("text", embeddings=np.ones((1, 16_001), dtype=np.float32))
        assert memory.count() == 0
        memory.add("text", ids=["a"], embeddings=np.ones((1, 16_000), dtype=np.float32))
        assert memory.search(embedding=np.ones(16_000), k=1)[0].id == "a"
        assert memory.check()
