"""What every engine keeps is tested here, through Memory alone, on each place a store can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from rlm_memory import Memory
from support import SettableClock, WordEmbedder

OpenMemory: TypeAlias = Callable[..., Memory]

PLACES = ["sqlite", "sqlite-in-memory"]
SHARED_PLACES = ["sqlite"]
"""Places that several handles, and several processes, can open at once."""


def opener(place: str, folder: Path, embedder: WordEmbedder, clock: SettableClock) -> Iterator[OpenMemory]:
    opened: list[Memory] = []

    def open_memory(**options: Any) -> Memory:
        location = ":memory:" if place == "sqlite-in-memory" else folder / "memory.db"
        memory = Memory.open(location, **{"embedder": embedder, "clock": clock, **options})
        opened.append(memory)
        return memory

    yield open_memory
    for memory in opened:
        memory.close()


@pytest.fixture(params=PLACES)
def open_memory(
    request: pytest.FixtureRequest, tmp_path: Path, embedder: WordEmbedder, clock: SettableClock
) -> Iterator[OpenMemory]:
    """Opens a new store; what is opened is closed after the test."""
    yield from opener(request.param, tmp_path, embedder, clock)


@pytest.fixture(params=SHARED_PLACES)
def open_shared(
    request: pytest.FixtureRequest, tmp_path: Path, embedder: WordEmbedder, clock: SettableClock
) -> Iterator[OpenMemory]:
    """Opens the same store each time it is called; what is opened is closed after the test."""
    yield from opener(request.param, tmp_path, embedder, clock)


@pytest.fixture
def memory(open_memory: OpenMemory) -> Memory:
    """A new store with the embedder and the clock of the test."""
    return open_memory()
