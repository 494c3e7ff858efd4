"""Accesses on their way into the file: whatever stands in the way, each is counted, and counted once."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from rlm_memory import Memory
from rlm_memory.errors import StoreClosedError, StoreError

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
# what Python says about threads and fork is true, and is what these tests are about
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def open_store(path: Path, **options: object) -> Memory:
    return Memory.open(path, embedder=None, **options)  # type: ignore[arg-type]  # options of the test


@pytest.fixture
def memory(store_path: Path) -> Iterator[Memory]:
    with open_store(store_path) as memory:
        memory.add(["Oslo is in Norway.", "Paris is in France."], ids=["oslo", "paris"])
        yield memory


@contextlib.contextmanager
def somebody_writing(path: Path) -> Iterator[None]:
    """Hold the write lock as a long write elsewhere does."""
    connection = apsw.Connection(str(path))
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}-accesses-*"))


def count(path: Path, id: str = "oslo") -> int:
    """Return how often a node was accessed, as a new handle finds it, having checked that all accounts agree."""
    with open_store(path) as memory:
        accesses = memory.accesses(id)
        [node] = memory.get(id)
        assert node.access_count == len(accesses)
        assert memory.check()
        return len(accesses)


def in_child(work: Callable[[], None]) -> None:
    """Fork a process that does this and then dies without cleaning up."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# -- nobody waits ---------------------------------------------------------------------------------------------------


def test_a_search_is_reported_at_once_while_another_process_writes(memory: Memory, store_path: Path):
    """B076"""
    session = memory.session("s1")
    with somebody_writing(store_path):
        began = time.monotonic()
        for _ in range(20):
            assert memory.search("Norway", k=1, session=session)[0].id == "oslo"
            session.record_access("paris")
            memory.get("oslo")
            memory.sessions()
        assert time.monotonic() - began < 5, "one wait for the lock lasts ten seconds"
        [file] = files(store_path)
        assert file.stat().st_mode & 0o777 == 0o600
        assert memory.accesses("oslo") == []
    assert len(memory.accesses("oslo")) == memory.get("paris")[0].access_count == 20
    assert memory.get("oslo")[0].tier == "session"


def test_nobody_who_reads_waits_for_a_thread_that_waits_to_write(memory: Memory, store_path: Path):
    session = memory.session("s1")
    session.record_access("oslo")
    ending = threading.Thread(target=session.end)
    with somebody_writing(store_path):
        ending.start()
        for _ in range(20):
            session.record_access("oslo")
            assert memory.get("oslo")[0].access_count == 0
            memory.search("Norway", session=session, k=1)
            assert memory.explain_promotion("oslo").from_tier == "task"
        assert ending.is_alive()
    ending.join()
    assert memory.get("oslo")[0].access_count == 41


def test_a_store_is_opened_while_another_process_writes(memory: Memory, store_path: Path):
    memory.session("s1").record_access("oslo")
    with somebody_writing(store_path), open_store(store_path) as other:
        assert other.accesses("oslo") == []
        assert other.search("Norway", k=1)[0].id == "oslo"
    assert count(store_path) == 1


def test_what_is_queued_is_written_down_by_itself(memory: Memory, store_path: Path):
    memory.session("s1").record_access("oslo")
    deadline = time.monotonic() + 30
    while files(store_path):  # nobody else asks for anything meanwhile
        assert time.monotonic() < deadline
        os.sched_yield()
    with open_store(store_path, read_only=True) as reader:
        assert len(reader.accesses("oslo")) == 1


# -- nothing is lost, nothing counts twice --------------------------------------------------------------------------


def test_no_file_is_left_when_all_is_closed(memory: Memory, store_path: Path):
    other = open_store(store_path)
    for handle in (memory, other):
        handle.session("s1").record_access(["oslo", "paris"])
    assert len(files(store_path)) == 2
    memory.close()
    other.close()
    memory.close()
    assert files(store_path) == []
    assert count(store_path) == 2


def test_handles_that_take_in_each_others_reports_count_each_once(memory: Memory, store_path: Path):
    def work(handle: Memory) -> None:
        session = handle.session("s1")
        for number in range(40):
            session.record_access("oslo")
            if number % 3 == 0:
                handle.sessions()
        handle.close()

    threads = [threading.Thread(target=work, args=(open_store(store_path),)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files(store_path) == []
    assert count(store_path) == 200


def test_a_settling_that_fails_in_the_middle_keeps_everything_for_the_next(memory: Memory, store_path: Path):
    session = memory.session("s1")
    session.record_access("oslo")
    session.record_access("oslo")
    raw = apsw.Connection(str(store_path))
    raw.execute("CREATE TRIGGER refuse BEFORE INSERT ON promotion_log BEGIN SELECT RAISE(ABORT, 'refused'); END")
    with pytest.raises(StoreError, match="refused"):
        session.end()
    with pytest.raises(StoreError, match="refused"):
        session.outcome(True)
    assert memory.get("oslo")[0].access_count == 0, "a read goes on without"
    session.record_access("oslo")
    raw.execute("DROP TRIGGER refuse")
    raw.close()
    assert [access.turn for access in memory.accesses("oslo")] == [1, 2, 3]
    memory.close()
    assert count(store_path) == 3


def test_closing_a_store_that_cannot_be_written_leaves_all_to_the_next(
    memory: Memory, store_path: Path, caplog: pytest.LogCaptureFixture
):
    memory.session("s1").record_access("oslo")
    memory.session("s1").record_access("oslo")
    raw = apsw.Connection(str(store_path))
    raw.execute("CREATE TRIGGER refuse BEFORE INSERT ON promotion_log BEGIN SELECT RAISE(ABORT, 'refused'); END")
    memory.close()
    assert "left to the next" in caplog.text
    assert len(files(store_path)) == 1
    with open_store(store_path) as other:
        assert other.search("Norway", k=1)[0].id == "oslo", "nor does it keep a store from being opened"
    raw.execute("DROP TRIGGER refuse")
    raw.close()
    assert count(store_path) == 2
    assert files(store_path) == []


def test_what_is_reported_to_a_closed_store_is_refused(memory: Memory):
    session = memory.session("s1")
    hits = memory.search("Norway")
    memory.close()
    with pytest.raises(StoreClosedError):
        session.record(hits)
    with pytest.raises(StoreClosedError):
        memory.search("Norway", session=session)


@needs_fork
def test_lines_that_are_no_reports_spoil_none_that_are(memory: Memory, store_path: Path):
    def leave_a_file() -> None:
        session = memory.session("s1")
        session.record_access("oslo")
        [file] = files(store_path)
        with file.open("ab") as stream:
            stream.write(
                b'\n\xff\xfe\n{"a": 1}\n[1, 2]\n["s", 1, "w", 1, null, [1]]\n["s", 1, "w", 1, null, [["oslo"]]]\n'
            )
            stream.write(b'["s", "one", "w", 1, null, []]\n' + b"[" * 100_000 + b"\n")
            stream.write(b'["s2", 1, "w", 5, "r", [["oslo", 0.5]]]\n["s3", 1, "w", 1, null, [["oslo", 0.5]]]')

    in_child(leave_a_file)
    assert count(store_path) == 2, "the last line has no end: its process had not finished it"
    assert files(store_path) == []


@needs_fork
def test_what_is_in_the_file_already_is_not_taken_in_again(memory: Memory, store_path: Path):
    """B153"""

    def leave_a_file() -> None:
        memory.session("s1").record_access("oslo")

    in_child(leave_a_file)
    [file] = files(store_path)
    content = file.read_bytes()
    with somebody_writing(store_path):
        open_store(store_path).close()
    assert file.read_bytes() == content, "nobody could take it in"
    os.link(file, file.with_name("kept"))  # as if its deletion had been prevented
    reader = memory.accesses("oslo")
    file.with_name("kept").rename(file)
    assert len(reader) == 1
    raw = apsw.Connection(str(store_path))
    assert raw.execute("SELECT name, taken FROM access_journals").fetchall() == [(file.name, len(content))]
    raw.close()
    assert count(store_path) == 1
    assert files(store_path) == []
    memory.session("s1").record_access("oslo")
    memory.close()
    raw = apsw.Connection(str(store_path))
    assert (file.name,) not in raw.execute("SELECT name FROM access_journals").fetchall(), "forgotten with its file"
    raw.close()
    assert count(store_path) == 2


def test_a_store_behind_a_link_is_the_same_store(memory: Memory, store_path: Path, tmp_path: Path):
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(store_path)
    with open_store(link) as linked:
        linked.session("s1").record_access("oslo")
        assert len(memory.accesses("oslo")) == 1
        assert [name.name for name in link.parent.iterdir()] == ["link.db"]
    assert count(store_path) == 1


# -- processes ------------------------------------------------------------------------------------------------------


@needs_fork
def test_what_a_dead_process_has_reported_is_taken_in_by_the_next(memory: Memory, store_path: Path):
    def report_and_die() -> None:
        session = memory.session("s1")
        for _ in range(3):
            session.record_access("oslo")

    in_child(report_and_die)
    assert len(files(store_path)) == 1
    assert count(store_path) == 3
    assert files(store_path) == []
    assert memory.get("oslo")[0].tier == "session", "decided as if its process had lived"


@needs_fork
@pytest.mark.parametrize("closes", [True, False])
def test_parent_and_child_report_each_their_own(memory: Memory, store_path: Path, closes: bool):
    """B130"""
    session = memory.session("s1")
    session.record_access("oslo")

    def go_on() -> None:
        session.record_access("oslo")
        memory.search("Norway", k=1, session=session)
        if closes:
            memory.close()

    with somebody_writing(store_path):  # so that the parent's report is still queued
        in_child(lambda: session.record_access("oslo"))
        assert len(files(store_path)) == 2
    in_child(go_on)
    session.record_access("oslo")
    accesses = memory.accesses("oslo")
    assert len(accesses) == len({(access.writer, access.turn) for access in accesses}) == 5
    assert len({access.writer for access in accesses}) == 3
    memory.close()
    assert count(store_path) == 5
    assert files(store_path) == []


@needs_fork
def test_a_fork_while_others_report_leaves_no_lock_behind(memory: Memory, store_path: Path):
    """B130"""
    session = memory.session("s1")
    hits = memory.search("France", k=1)
    stop = threading.Event()

    def report() -> None:
        while not stop.wait(0.0005):  # without a pause a slow machine reports more than it can write down in minutes
            session.record(hits)

    def use_everything() -> None:
        session.record_access("oslo")
        memory.search("Norway", k=1, session="s2")
        memory.session("s3").record_access("oslo")

    threads = [threading.Thread(target=report) for _ in range(3)]
    # Nobody is inside of SQLite when the process forks: it has locks of its own, which no child can renew.
    with somebody_writing(store_path):
        for thread in threads:
            thread.start()
        for _ in range(8):
            in_child(use_everything)
        stop.set()
        for thread in threads:
            thread.join()
    memory.close()
    assert count(store_path) == 8 * 3


def test_a_program_that_just_ends_loses_nothing_and_says_nothing(memory: Memory, store_path: Path):
    """B107"""
    program = (
        "import sys; from rlm_memory import Memory\n"
        "memory = Memory.open(sys.argv[1], embedder=None)\n"
        "for _ in range(3): memory.search('Norway', k=1, session='s1')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert count(store_path) == 3


@needs_fork
def test_a_full_disk_stops_no_search_and_loses_no_access_of_a_process_that_lives(memory: Memory, store_path: Path):
    resource = pytest.importorskip("resource", reason="there are no limits of resources here")

    def fill_and_free() -> None:
        logging.disable()  # the warnings would be written to the disk that is full
        session = memory.session("s1")
        session.record_access("oslo")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (90, limits[1]))
        for _ in range(3):
            assert memory.search("Norway", k=1, session=session)[0].id == "oslo"
            session.record_access("oslo")
        assert memory.get("oslo")[0].access_count == 0
        with pytest.raises(StoreError):
            session.end()
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        session.record_access("oslo")
        accesses = memory.accesses("oslo")
        assert sorted(access.turn for access in accesses) == list(range(1, 9))
        assert files(store_path) == []

    in_child(fill_and_free)
    assert count(store_path) == 8


# -- stores that are open for reading --------------------------------------------------------------------------------


def bytes_in(folder: Path) -> dict[str, bytes]:
    """The content of a folder, but for the file of shared memory through which SQLite's readers see each other."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


@needs_fork
def test_a_reader_changes_no_byte_of_the_file_nor_of_what_is_queued(memory: Memory, store_path: Path):
    """B140 B143"""
    in_child(lambda: memory.session("s1").record_access("oslo"))
    before = bytes_in(store_path.parent)
    assert len(files(store_path)) == 1
    with open_store(store_path, read_only=True) as reader:
        for _ in range(3):
            reader.search("Norway", session="s2")
        with reader.session("s3") as session:
            session.record_access("oslo")
        reader.sessions()
        reader.explain_promotion("oslo")
        reader.candidates()
        reader.timeline()
        assert list(reader.promotion_log()) == []
        assert reader.sweep(dry_run=True) == []
    assert bytes_in(store_path.parent) == before
