"""A server that follows another one and takes no writes: what is read there, and what is said of the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from postgres_server import own_server, replica_of, url_in_schema
from rlm_memory import Memory
from rlm_memory.errors import StoreReadOnlyError
from support import WordEmbedder

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

TEXTS: Final = ["green tea", "black coffee", "white tea"]
LIMIT: Final = 60
"""Seconds after which a test has hung."""


class Servers(NamedTuple):
    primary: str
    replica: str

    def catch_up(self) -> None:
        """Return when the replica has all that the primary has written."""
        with psycopg.connect(self.primary) as primary, psycopg.connect(self.replica, autocommit=True) as replica:
            (end,) = primary.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
            tick = threading.Event()
            for _ in range(LIMIT * 100):
                if replica.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (end,)).fetchone() == (True,):
                    return
                tick.wait(0.01)
        raise AssertionError("the replica has not caught up")


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with own_server() as server:
        primary = url_in_schema(str(server.get_uri()))
        with replica_of(server, "max_standby_streaming_delay=0") as replica:
            yield Servers(primary, f"{replica}&{primary.partition('&')[2]}")


@pytest.fixture
def memory(servers: Servers) -> Iterator[Memory]:
    """A store at the primary, which the replica has too."""
    with Memory.open(servers.primary, embedder=WordEmbedder(16)) as opened:
        opened.add(TEXTS, ids=["a", "b", "c"])
        with opened.session("s") as session:
            session.record_access("a")
        opened.conversations.append("chat", [{"n": 1}])
        opened.key_values("c").put({"k": 1})
        servers.catch_up()
        yield opened


def test_all_that_can_be_read_is_read_at_a_replica(memory: Memory, servers: Servers, tmp_path: Path) -> None:
    with Memory.open(servers.replica, embedder=WordEmbedder(16), read_only=True) as replica:
        assert [hit.id for hit in replica.search("green tea", k=1)] == ["a"]
        assert [hit.id for hit in replica.search("green tea", k=1, alpha=0)] == ["a"]
        with replica.session("other") as session:
            assert [hit.id for hit in replica.search("coffee", k=1, session=session)] == ["b"]
        assert replica.list() == memory.list()
        assert replica.accesses("a") == memory.accesses("a")
        assert [each.id for each in replica.sessions()] == ["s"]
        assert list(replica.promotion_log()) == list(memory.promotion_log())
        assert [message.content for message in replica.conversations.list("chat")] == [{"n": 1}]
        assert dict(replica.key_values("c").items()) == {"k": 1}
        assert replica.stats().nodes == 3
        assert replica.check()
        replica.export(tmp_path / "replica.jsonl")
        memory.export(tmp_path / "primary.jsonl")
    assert (tmp_path / "replica.jsonl").read_text() == (tmp_path / "primary.jsonl").read_text()
    assert [each.id for each in memory.sessions()] == ["s"], "a replica has nowhere to report what was used"


@pytest.mark.parametrize("read_only", [True, False])
def test_a_replica_says_that_it_takes_no_writes(memory: Memory, servers: Servers, read_only: bool) -> None:
    with Memory.open(servers.replica, embedder=WordEmbedder(16), read_only=read_only) as replica:
        assert [hit.id for hit in replica.search("green tea", k=1)] == ["a"]
        writes = [lambda: replica.add("new"), lambda: replica.promote("a", "longterm", reason="good"), replica.sweep]
        for write in writes:
            with pytest.raises(StoreReadOnlyError, match="opened for reading" if read_only else "takes no writes"):
                write()
    assert memory.count() == 3


def test_a_server_that_is_set_to_take_no_writes_gets_none(memory: Memory, servers: Servers) -> None:
    url = servers.primary.replace("options=", "options=-c%20default_transaction_read_only%3Don%20")
    with Memory.open(url, embedder=WordEmbedder(16)) as guarded:
        assert [hit.id for hit in guarded.search("green tea", k=1)] == ["a"]
        with pytest.raises(StoreReadOnlyError, match="takes no writes"):
            guarded.add("new")
    assert memory.count() == 3


def test_searches_at_a_replica_go_on_while_it_must_take_over_changes(memory: Memory, servers: Servers) -> None:
    """A new table of vectors takes the old one from under a search, which the server then ends."""
    failed: list[BaseException] = []
    found: list[list[str]] = []
    over = threading.Event()

    def search() -> None:
        with Memory.open(servers.replica, embedder=WordEmbedder(16), read_only=True) as replica:
            while not over.is_set():
                try:
                    found.append([hit.id for hit in replica.search("green tea", k=1)])
                except BaseException as error:  # noqa: BLE001 - the test tells
                    failed.append(error)
                    return

    searching = [threading.Thread(target=search) for _ in range(2)]
    for thread in searching:
        thread.start()
    with psycopg.connect(servers.replica, autocommit=True) as watching:
        for _ in range(LIMIT):
            memory.reembed(WordEmbedder(16))
            servers.catch_up()
            if cut(watching) >= 3:
                break
        cuts = cut(watching)
    over.set()
    for thread in searching:
        thread.join(LIMIT)
    assert failed == []
    assert cuts >= 3
    assert set(map(tuple, found)) == {("a",)}


def cut(watching: Any) -> int:
    """Return how many searches the replica has ended."""
    select = "SELECT confl_lock + confl_snapshot FROM pg_stat_database_conflicts WHERE datname = current_database()"
    return int(watching.execute(select).fetchone()[0])
