"""A server that refuses a connection: what that means is told by its type, and what passes is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from postgres_server import database_of_roles
from rlm_memory import Memory
from rlm_memory.errors import StoreBusyError, StoreError, StoreUnavailableError

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

ROLE: Final = "rlm_refused"
DATABASE: Final = "rlm_refusing"

Urls = Callable[..., str]


@pytest.fixture
def urls(postgres_server: str) -> Iterator[Urls]:
    """Gives URLs of a store by role and database; the role may have two connections to the server."""
    with database_of_roles(postgres_server, DATABASE, {ROLE: "CONNECTION LIMIT 2"}) as url_of:
        yield url_of


def test_a_server_that_takes_no_more_connections_is_told_as_busy(urls: Urls) -> None:
    with psycopg.connect(urls()), psycopg.connect(urls()):
        start = time.monotonic()
        with pytest.raises(StoreBusyError, match="takes no more connections") as error:
            Memory.open(urls(timeout=0.5), embedder=None)
        assert 0.2 < time.monotonic() - start < 5
        assert "planted" not in str(error.value)


def test_a_connection_that_comes_free_in_time_is_taken(urls: Urls) -> None:
    others = [psycopg.connect(urls()) for _ in range(2)]
    leaving = threading.Timer(0.5, lambda: [other.close() for other in others])
    leaving.start()
    with Memory.open(urls(), embedder=None) as memory:
        assert memory.add("green tea", ids=["a"]) == ["a"]
    leaving.join()


@pytest.mark.parametrize(
    ("role", "database", "told"),
    [(ROLE, "rlm_nowhere", "no such database; create it first"), ("rlm_nobody", DATABASE, "refuses the role")],
)
def test_a_role_or_a_database_that_is_not_there_is_no_lost_connection(
    urls: Urls, role: str, database: str, told: str
) -> None:
    start = time.monotonic()
    with pytest.raises(StoreError, match=told) as error:
        Memory.open(urls(role, database), embedder=None)
    assert not isinstance(error.value, StoreUnavailableError)
    assert "planted" not in str(error.value)
    assert time.monotonic() - start < 5  # nothing is waited for that does not pass


def test_a_role_that_has_lost_its_right_is_told_so_at_once_by_a_store_that_is_open(
    urls: Urls, postgres_server: str
) -> None:
    with Memory.open(urls(), embedder=None) as memory, psycopg.connect(postgres_server, autocommit=True) as admin:
        memory.add("green tea", ids=["a"])
        admin.execute(f"ALTER ROLE {ROLE} NOLOGIN")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (ROLE,))
        start = time.monotonic()
        with pytest.raises(StoreError, match="refuses the role"):
            memory.count()
        assert time.monotonic() - start < 5
        admin.execute(f"ALTER ROLE {ROLE} LOGIN")
        assert memory.count() == 1
