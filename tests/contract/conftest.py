"""What every engine keeps is tested here, through Memory alone, on each place a store can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import pytest

from postgres_server import emptied
from rlm_memory import Memory
from support import SettableClock, WordEmbedder

OpenMemory: TypeAlias = Callable[..., Memory]

PLACES = ["sqlite", "sqlite-in-memory", "postgres"]
SHARED_PLACES = ["sqlite", "postgres"]
"""Places that several handles, and several processes, can open at once."""
IN_PARTITIONS = "postgres-in-partitions"
"""A store whose tables are split by the hash of the namespace: a part of the contract runs there too."""
PARTS = ("test_namespaces", "test_listing", "test_key_values")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "open_memory" in metafunc.fixturenames:
        in_partitions = metafunc.module.__name__.rpartition(".")[2] in PARTS
        places = [*PLACES, IN_PARTITIONS] if in_partitions else PLACES
        metafunc.parametrize("open_memory", places, indirect=True)


def opener(
    request: pytest.FixtureRequest, folder: Path, embedder: WordEmbedder, clock: SettableClock
) -> Iterator[OpenMemory]:
    opened: list[Memory] = []
    location: str | Path = {
        "sqlite": lambda: folder / "memory.db",
        "sqlite-in-memory": lambda: ":memory:",
        "postgres": lambda: request.getfixturevalue("postgres_url"),
        IN_PARTITIONS: lambda: request.getfixturevalue("postgres_url_in_partitions"),
    }[request.param]()

    def open_memory(**options: Any) -> Memory:
        memory = Memory.open(location, **{"embedder": embedder, "clock": clock, **options})
        opened.append(memory)
        return memory

    yield open_memory
    for memory in opened:
        memory.close()


@pytest.fixture
def open_memory(
    request: pytest.FixtureRequest, tmp_path: Path, embedder: WordEmbedder, clock: SettableClock
) -> Iterator[OpenMemory]:
    """Opens a new store; what is opened is closed after the test."""
    yield from opener(request, tmp_path, embedder, clock)


@pytest.fixture
def postgres_url_in_partitions(postgres_server: str) -> str:
    """The URL of a store in three hash partitions, at which nothing is stored yet."""
    import psycopg  # where there is a server, it is there

    url = postgres_server.replace(quote("search_path=rlm_test,"), quote("search_path=rlm_partitions,"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS rlm_partitions")
    emptied(url)
    return f"{url}&partitions=3"


@pytest.fixture(params=SHARED_PLACES)
def open_shared(
    request: pytest.FixtureRequest, tmp_path: Path, embedder: WordEmbedder, clock: SettableClock
) -> Iterator[OpenMemory]:
    """Opens the same store each time it is called; what is opened is closed after the test."""
    yield from opener(request, tmp_path, embedder, clock)


@pytest.fixture
def in_a_file(request: pytest.FixtureRequest) -> None:
    """Skips what a server leaves to its own programs."""
    if {"postgres", IN_PARTITIONS} & set(request.node.callspec.params.values()):
        pytest.skip("a server keeps whole float32 vectors, frees room when it vacuums, and is backed up by pg_dump")


@pytest.fixture
def memory(open_memory: OpenMemory) -> Memory:
    """A new store with the embedder and the clock of the test."""
    return open_memory()
