"""What a file costs after a life of changes: what is deleted is used again, and `compact` gives it back."""

from __future__ import annotations

import random
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from rlm_memory import Memory
from rlm_memory.records import VectorStorage

COUNT, DIMENSIONS = 480, 768
IDS = [str(number) for number in range(COUNT)]


def write(memory: Memory, ids: list[str], seed: int) -> None:
    """Write nodes of about the same size each time, under ids that may be known."""
    chance = random.Random(seed)
    texts = [" ".join(f"word{chance.randrange(2000)}" for _ in range(12)) for _ in ids]
    vectors = np.random.default_rng(seed).standard_normal((len(ids), DIMENSIONS))
    memory.add(texts, ids=ids, metadatas=[{"n": chance.randrange(9)} for _ in ids], embeddings=vectors)


def size_of(memory: Memory) -> int:
    return memory.stats().file_bytes


@pytest.fixture
def new_size(tmp_path: Path, storage: VectorStorage) -> int:
    """What the nodes cost in a file that has held nothing else."""
    with Memory.open(tmp_path / "new.db", embedder=None, embedding_storage=storage) as memory:
        write(memory, IDS, 1)
        return size_of(memory)


@pytest.mark.parametrize("storage", get_args(VectorStorage))
def test_writing_the_same_ids_again_and_again_is_bounded(
    store_path: Path, storage: VectorStorage, new_size: int
) -> None:
    """B061"""
    chance = random.Random(2)
    with Memory.open(store_path, embedder=None, embedding_storage=storage) as memory:
        for seed in range(50):
            for _ in range(2):
                write(memory, chance.sample(IDS, COUNT // 2), seed)
            if seed == 24:
                half_way = size_of(memory)
        stats = memory.stats()
        assert stats.file_bytes < 1.2 * half_way
        memory.compact()
        assert size_of(memory) < 1.1 * new_size
        assert size_of(memory) < 1.05 * (stats.file_bytes - stats.free_bytes)
        assert memory.check()
        assert memory.count() == COUNT


@pytest.mark.parametrize("storage", get_args(VectorStorage))
def test_compact_gives_back_what_is_deleted_and_adding_again_costs_no_more_than_before(
    store_path: Path, storage: VectorStorage
) -> None:
    """B061"""
    with Memory.open(store_path, embedder=None, embedding_storage=storage) as memory:
        memory.compact()
        empty = size_of(memory)
        sizes = []
        for seed in range(6):
            write(memory, IDS, seed)
            memory.delete(IDS[::2])
            memory.compact()
            half = size_of(memory)
            write(memory, IDS[::2], seed)
            sizes.append(size_of(memory))
            assert half - empty < 0.75 * (sizes[0] - empty)
        assert max(sizes) <= 1.05 * sizes[0]
        assert memory.check()
        memory.clear()
        memory.compact()
        assert size_of(memory) <= empty + 131_072
        assert store_path.stat().st_size == size_of(memory)


def test_what_is_free_is_told(store_path: Path) -> None:
    with Memory.open(store_path, embedder=None) as memory:
        write(memory, IDS, 1)
        memory.compact()
        assert memory.stats().free_bytes == 0
        for part in range(0, COUNT, 7):  # no chunk of vectors becomes empty
            memory.delete(IDS[part : part + 5])
        before = memory.stats()
        memory.compact()
        after = memory.stats()
        assert before.free_bytes > 0.4 * before.file_bytes
        assert before.file_bytes - before.free_bytes == pytest.approx(after.file_bytes, rel=0.2)
        assert before.vector_bytes == pytest.approx(after.vector_bytes, rel=0.2)


@pytest.mark.parametrize(("storage", "bytes_a_component"), [("float32", 4), ("int8", 1), ("bit", 1 / 8)])
def test_stats_tells_what_texts_keywords_and_vectors_cost(
    store_path: Path, storage: VectorStorage, bytes_a_component: float
) -> None:
    texts = [f"größer als {number} 设备" for number in range(COUNT)]
    with Memory.open(store_path, embedder=None, embedding_storage=storage) as memory:
        memory.add(texts, ids=IDS)
        without = memory.stats()
        memory.add(texts, ids=IDS, embeddings=np.random.default_rng(1).standard_normal((COUNT, DIMENSIONS)))
        stats = memory.stats()
    assert stats.text_bytes == without.text_bytes == sum(len(text.encode()) for text in texts)
    assert stats.keyword_bytes == without.keyword_bytes > 0
    assert without.vector_bytes < 65_536
    bare = COUNT * DIMENSIONS * bytes_a_component
    assert bare <= stats.vector_bytes < 1.5 * bare + 100_000
    parts = (stats.text_bytes, stats.keyword_bytes, stats.vector_bytes, stats.other_bytes, stats.free_bytes)
    assert sum(parts) == stats.file_bytes
    assert min(parts) >= 0
