"""What happens at the limits that a server and a pool set: a typed error in time, and a store that serves on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pytest

from rlm_memory import Memory
from rlm_memory.engines import open_engine
from rlm_memory.errors import StoreBusyError, StoreCorruptError, StoreUnavailableError
from rlm_memory.ports import Engine, Scope
from rlm_memory.records import Encoded, ThreadCheckpoint
from support import SettableClock, WordEmbedder

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

IN_TIME: Final = 5.0
"""Seconds within which an error is to be there whose limit is a fraction of one."""


def with_settings(url: str, *settings: str) -> str:
    return url.replace(quote("-c search_path"), quote("".join(f"-c {each} " for each in settings) + "-c search_path"))


def opened(url: str) -> Memory:
    return Memory.open(url, embedder=WordEmbedder(16), clock=SettableClock())


@pytest.mark.parametrize("call", ["add", "search", "delete", "list"])
def test_a_statement_that_takes_too_long_is_told_in_time_and_the_store_serves_on(postgres_url: str, call: str) -> None:
    with opened(postgres_url) as memory:
        memory.add("green tea", ids=["a"])
    with opened(with_settings(postgres_url, "statement_timeout=100ms")) as memory:
        arguments: dict[str, Any] = {"add": {"texts": "more"}, "search": {"query": "tea"}, "delete": {"ids": "a"}}
        with psycopg.connect(postgres_url) as somebody:
            somebody.execute("LOCK TABLE rlm_nodes")
            start = time.monotonic()
            with pytest.raises(StoreBusyError, match="statement_timeout"):
                getattr(memory, call)(**arguments.get(call, {}))
            assert time.monotonic() - start < IN_TIME
        assert [hit.id for hit in memory.search("tea")] == ["a"]
        memory.add("more", ids=["b"])
        assert memory.count() == 2
        assert memory.check()


@contextlib.contextmanager
def engine_of(url: str) -> Iterator[Engine]:
    options: dict[str, Any] = {"tokenizer": "unicode61", "embedding_storage": "float32", "stop_words": frozenset()}
    with contextlib.closing(open_engine(url, namespace="default", read_only=False, **options)) as engine:
        yield engine


def backends(url: str, condition: str = "true") -> list[int]:
    with psycopg.connect(url, autocommit=True) as connection:
        select = f"SELECT pid FROM pg_stat_activity WHERE application_name = 'rlm-memory' AND {condition}"
        return [pid for (pid,) in connection.execute(select.encode())]


def test_a_transaction_in_which_nothing_happens_is_ended_by_the_server_and_told(postgres_url: str) -> None:
    tick = threading.Event()

    def count_after_the_end() -> None:
        while backends(postgres_url, "state LIKE 'idle in transaction%%'"):
            tick.wait(0.02)
        engine.count(Scope())

    with engine_of(with_settings(postgres_url, "idle_in_transaction_session_timeout=100ms")) as engine:
        with pytest.raises(StoreUnavailableError, match="idle_in_transaction"), engine.transaction():
            count_after_the_end()
        assert engine.count(Scope()) == 0


def test_a_connection_that_an_administrator_has_ended_is_told_and_replaced(postgres_url: str) -> None:
    with opened(postgres_url) as memory:
        memory.add("green tea", ids=["a"])
        with psycopg.connect(postgres_url, autocommit=True) as somebody:
            for pid in backends(postgres_url):
                somebody.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        memory.add("black coffee", ids=["b"])
        assert memory.count() == 2


def test_a_pool_that_is_used_up_is_told_in_time_and_serves_on(postgres_url: str) -> None:
    held, release = threading.Barrier(3), threading.Event()

    def hold() -> None:
        with engine.reading():
            held.wait()
            release.wait()

    with engine_of(postgres_url + "&pool_size=2&timeout=0.2") as engine:
        threads = [threading.Thread(target=hold) for _ in range(2)]
        for thread in threads:
            thread.start()
        held.wait()
        start = time.monotonic()
        with pytest.raises(StoreBusyError, match=r"all 2 connections .* pool_size"):
            engine.count(Scope())
        assert 0.2 <= time.monotonic() - start < IN_TIME
        release.set()
        for thread in threads:
            thread.join()
        assert engine.count(Scope()) == 0


def test_more_threads_than_connections_take_turns(postgres_url: str) -> None:
    errors: list[BaseException] = []
    most = 0

    def work(memory: Memory, number: int) -> None:
        nonlocal most
        try:
            for turn in range(3):
                memory.add(f"text {number} {turn}")
                memory.search("text", k=1)
                most = max(most, len(backends(postgres_url)))
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    with opened(postgres_url + "&pool_size=2") as memory:
        memory.add("first")
        threads = [threading.Thread(target=work, args=(memory, number)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert memory.count() == 25
    assert most <= 2


@pytest.mark.parametrize("damage", ["UPDATE rlm_thread_chunks SET content = '\\x00'", "DELETE FROM rlm_thread_chunks"])
def test_a_value_of_which_a_part_is_damaged_or_gone_is_never_returned(postgres_url: str, damage: str) -> None:
    with opened(postgres_url) as memory:
        large = np.random.default_rng(1).bytes(100_000)
        checkpoint = ThreadCheckpoint(
            thread_id="t", id="1", parent_id=None, graph="", head=Encoded("json", b"{}"), metadata={},
            values={"v": Encoded("bytes", large)}, versions={"v": 1},
        )  # fmt: skip
        memory.threads("k").put(checkpoint)
        found = memory.threads("k").get("t")
        assert found is not None
        assert found.values["v"].content == large
        with psycopg.connect(postgres_url, autocommit=True) as somebody:
            somebody.execute(damage)
        with pytest.raises(StoreCorruptError):
            memory.threads("k").get("t")
        assert not memory.check()
