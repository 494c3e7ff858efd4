"""Transactions that the server undoes for another one's sake: done again, once, or told by a typed error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pytest

from rlm_memory import Memory
from rlm_memory.errors import EmbeddingMismatchError, StoreConflictError
from rlm_memory.records import Encoded, ThreadCheckpoint
from support import SettableClock, WordEmbedder

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

LIMIT: Final = 20
"""Seconds after which a test has hung."""


def with_settings(url: str, *settings: str) -> str:
    return url.replace(quote("-c search_path"), quote("".join(f"-c {each} " for each in settings) + "-c search_path"))


class Other:
    """Somebody else on the server, who is never the one to give in."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(with_settings(url, "deadlock_timeout=1h"))
        self._watching = psycopg.connect(url, autocommit=True)

    def until_waited_for(self, waiting: int = 1) -> None:
        """Return when so many wait for what this one holds, or for one who waits for it."""
        select = (
            "WITH RECURSIVE held (pid) AS (SELECT %s::int UNION SELECT a.pid FROM pg_stat_activity a "
            "JOIN held ON held.pid = ANY (pg_blocking_pids(a.pid))) SELECT count(*) - 1 FROM held"
        )
        tick = threading.Event()
        for _ in range(LIMIT * 100):
            row = self._watching.execute(select, (self.connection.info.backend_pid,)).fetchone()
            if row is not None and row[0] >= waiting:
                return
            tick.wait(0.01)
        raise AssertionError("nobody has waited")

    def close(self) -> None:
        self.connection.close()
        self._watching.close()


@pytest.fixture
def other(postgres_url: str) -> Iterator[Other]:
    try:
        somebody = Other(postgres_url)
    except psycopg.errors.InsufficientPrivilege:
        pytest.skip("deciding who gives in to whom needs a superuser")
    yield somebody
    somebody.close()


@pytest.fixture
def memory(postgres_url: str) -> Iterator[Memory]:
    url = with_settings(postgres_url, "deadlock_timeout=50ms")
    with Memory.open(url, embedder=WordEmbedder(16), clock=SettableClock()) as opened:
        opened.add(["green tea", "black coffee"], ids=["a", "b"], tier="session")
        opened.conversations.append("chat", [{"n": 1}, {"n": 2}])
        opened.key_values("c").put({"k": 1})
        opened.threads("t").put(checkpoint("old"))
        yield opened


def checkpoint(value: str) -> ThreadCheckpoint:
    return ThreadCheckpoint(
        thread_id="t", id="1", parent_id=None, graph="", head=Encoded("json", b"{}"), metadata={},
        values={"v": Encoded("json", value.encode())}, versions={"v": 1},
    )  # fmt: skip


def use(memory: Memory) -> None:
    with memory.session("s") as session:
        session.record_access("a")


def moves(memory: Memory) -> list[str]:
    return [entry.decision.to_tier for entry in memory.promotion_log()]


class Write(NamedTuple):
    """A call that waits for one who holds some rows, what it has done when it has succeeded, and what that should be.

    The rows are locked by the call after the namespace, for which the other one comes to wait in turn.
    """

    rows: str
    call: Callable[[Memory], Any]
    done: Callable[[Memory], Any]
    expected: Any


A_NODE: Final = "SELECT 1 FROM rlm_nodes WHERE id = 'a' FOR UPDATE"
WRITES: Final = {
    "add": Write(
        A_NODE,
        lambda memory: memory.add(["white tea", "new"], ids=["a", "c"], tier="longterm"),
        lambda memory: ([node.text for node in memory.get(["a", "c"])], moves(memory), memory.embedder_for_use().asked),
        (
            ["white tea", "new"],
            ["session", "session", "longterm"],
            ["green tea", "black coffee", "white tea", "new"],
        ),
    ),
    "update": Write(
        A_NODE,
        lambda memory: memory.update("a", text="white tea"),
        lambda memory: ([node.text for node in memory.get("a")], memory.embedder_for_use().asked[2:]),
        (["white tea"], ["white tea"]),
    ),
    "delete": Write(
        A_NODE,
        lambda memory: memory.delete("a"),
        lambda memory: (memory.count(), moves(memory)),
        (1, ["session", "session", "task"]),
    ),
    "promote": Write(
        A_NODE,
        lambda memory: memory.promote("a", "longterm", reason="good"),
        moves,
        ["session", "session", "longterm"],
    ),
    "pin": Write(
        A_NODE,
        lambda memory: memory.pin("a", reason="good"),
        lambda memory: (memory.get("a")[0].pinned, len(moves(memory))),
        (True, 3),
    ),
    "accesses": Write(A_NODE, use, lambda memory: (len(memory.accesses("a")), memory.get("a")[0].access_count), (1, 1)),
    "archive": Write(
        "SELECT 1 FROM rlm_messages FOR UPDATE",
        lambda memory: memory.conversations.archive_oldest("chat", 1),
        lambda memory: [message.status for message in memory.conversations.list("chat")],
        ["archived", "active"],
    ),
    "value under a key": Write(
        "SELECT 1 FROM rlm_key_values FOR UPDATE",
        lambda memory: memory.key_values("c").put({"k": 2}),
        lambda memory: dict(memory.key_values("c").items()),
        {"k": 2},
    ),
    "checkpoint": Write(
        "SELECT 1 FROM rlm_thread_checkpoints FOR UPDATE",
        lambda memory: memory.threads("t").put(checkpoint("new")),
        lambda memory: [bytes(each.values["v"].content) for each in memory.threads("t").list("t")],
        [b"new"],
    ),
}


class Calling:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - the test tells
            self.error = error

    def ended(self) -> BaseException | None:
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        return self.error


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_a_write_that_meets_a_deadlock_is_done_again_and_once(memory: Memory, other: Other, write: Write) -> None:
    other.connection.execute(write.rows)
    calling = Calling(lambda: write.call(memory))
    other.until_waited_for()
    other.connection.execute("UPDATE rlm_namespaces SET name = name")  # returns when the call was undone
    other.connection.commit()
    assert calling.ended() is None
    assert write.done(memory) == write.expected
    assert list(memory.check()) == []


def test_a_search_that_meets_a_deadlock_is_done_again(memory: Memory, other: Other) -> None:
    """As where a newer release changes tables."""
    found: list[str] = []
    other.connection.execute("LOCK TABLE rlm_nodes")
    calling = Calling(lambda: found.extend(hit.id for hit in memory.search("tea", k=1)))
    other.until_waited_for()
    other.connection.execute("LOCK TABLE rlm_namespaces")
    other.connection.commit()
    assert calling.ended() is None
    assert found == ["a"]


def test_a_transaction_that_cannot_be_done_again_says_that_nothing_of_it_is_kept(
    memory: Memory, other: Other, postgres_url: str, tmp_path: Path
) -> None:
    """A file that is imported may be large, and is not read a second time unasked."""
    file = tmp_path / "export.jsonl"
    memory.export(file)
    url = with_settings(postgres_url, "deadlock_timeout=50ms")
    with Memory.open(url, embedder=WordEmbedder(16), namespace="copy") as copy:
        copy.key_values("c").put({"k": 1})
        other.connection.execute("LOCK TABLE rlm_messages IN SHARE MODE")
        calling = Calling(lambda: copy.import_(file))
        other.until_waited_for()
        other.connection.execute("UPDATE rlm_namespaces SET name = name")
        other.connection.commit()
        error = calling.ended()
        assert isinstance(error, StoreConflictError)
        assert "nothing of this is kept" in str(error)
        assert isinstance(error.__cause__, psycopg.errors.DeadlockDetected)
        assert copy.count() == 0
        assert copy.key_values("c").delete(["k"]) == ["k"]
        copy.import_(file)
        assert copy.count() == 2
        assert list(copy.check()) == []


def test_who_is_always_undone_is_told_in_the_end(memory: Memory, postgres_url: str) -> None:
    """The trigger does what a deadlock does: the server undoes the transaction, each time."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION pg_temp.undo() RETURNS trigger LANGUAGE plpgsql AS "
            "$$BEGIN RAISE EXCEPTION 'undone' USING ERRCODE = 'deadlock_detected'; END$$; "
            "CREATE TRIGGER undo BEFORE INSERT ON rlm_messages FOR EACH ROW EXECUTE FUNCTION pg_temp.undo()"
        )
        with pytest.raises(StoreConflictError, match="call it again"):
            memory.conversations.append("chat", [{"n": 3}])
    memory.conversations.append("chat", [{"n": 3}])
    assert len(memory.conversations.list("chat")) == 3


ISOLATIONS: Final = ["read committed", "repeatable read", "serializable"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_the_isolation_level_of_the_server_makes_no_write_fail(postgres_url: str, other: Other, isolation: str) -> None:
    """Writers take turns by a lock: at other levels, who has waited for it would fail to serialize."""
    url = with_settings(postgres_url, "default_transaction_isolation=" + isolation.replace(" ", r"\ "))
    with Memory.open(url, embedder=WordEmbedder(16), clock=SettableClock()) as memory:
        memory.add("green tea", ids=["a"])
        other.connection.execute("UPDATE rlm_namespaces SET name = name")
        calling = Calling(lambda: memory.add("black coffee", ids=["b"]))
        other.until_waited_for()
        other.connection.commit()
        assert calling.ended() is None
        use(memory)
        assert memory.get("a")[0].access_count == 1
        assert list(memory.check()) == []


# -- changes of the embedding model, which touch all namespaces --------------------------------------------------------


def test_two_namespaces_that_change_the_model_at_once_both_come_to_an_end(postgres_url: str) -> None:
    """Each has the lock of its own namespace, and wants those of all."""
    names = [f"n{number}" for number in range(4)]
    memories = [Memory.open(postgres_url, embedder=WordEmbedder(16), namespace=name) for name in names]
    for memory in memories:
        memory.add([f"text {number}" for number in range(20)])
    start = threading.Barrier(len(names))

    def change(memory: Memory) -> None:
        start.wait()
        memory.reembed(WordEmbedder(16, model="another"))

    calls = [Calling(lambda memory=memory: change(memory)) for memory in memories]  # type: ignore[misc]  # bound now
    for call in calls:
        assert call.ended() is None
    for memory, name in zip(memories, names, strict=True):
        memory.close()
        with Memory.open(postgres_url, embedder=WordEmbedder(16, model="another"), namespace=name) as changed:
            assert changed.stats().pending == 0
            assert list(changed.check()) == []


def test_a_namespace_that_is_made_during_a_change_of_the_model_gets_no_vector_of_the_old_one(
    memory: Memory, other: Other, postgres_url: str
) -> None:
    other.connection.execute("SELECT count(*) FROM rlm_node_vectors")
    change = Calling(lambda: memory.reembed(WordEmbedder(16, model="another")))
    other.until_waited_for()

    def add() -> None:
        with Memory.open(postgres_url, embedder=WordEmbedder(16, model="words"), namespace="new") as new:
            new.add("green tea", embeddings=[WordEmbedder(16).embed_query("green tea")])

    adding = Calling(add)
    other.until_waited_for(2)
    other.connection.commit()
    assert change.ended() is None
    assert isinstance(adding.ended(), EmbeddingMismatchError)
    with Memory.open(postgres_url, embedder=WordEmbedder(16, model="another"), namespace="new") as new:
        assert new.count() == 0
