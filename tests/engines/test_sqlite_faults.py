"""Disks that are full or broken: a shim between SQLite and the system fails one call after another.

The shim has no shared memory, so SQLite keeps a rollback journal there in place of its log (WAL); what a full disk does
to the log is tried with a limit of the system.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from processes import python
from rlm_memory import Memory
from rlm_memory.errors import RLMError, StoreCorruptError, StoreError, StoreFullError
from support import WordEmbedder


class Disk(apsw.VFS):
    """Every file is opened through it; it fails calls of one kind, from one of them on, for files of one ending."""

    def __init__(self) -> None:
        self.fault: tuple[str, type[apsw.Error], int] | None = None
        self.calls = 0
        self.failed = 0
        super().__init__("faulty", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802  # SQLite's name
        return File(self, name, flags)

    def meets(self, call: str) -> None:
        if self.fault is not None and self.fault[0] == call:
            self.calls += 1
            if self.calls >= self.fault[2]:
                self.failed += 1
                raise self.fault[1](f"{call} {self.calls} is made to fail")


class File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        super().__init__("unix", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self.disk.meets("read")
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self.disk.meets("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self.disk.meets("sync")
        super().xSync(flags)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


def texts(memory: Memory) -> dict[str | None, str]:
    return {node.id: node.text for node in memory.list(limit=1000, include_archived=True)}


WRITES = {
    "add": lambda memory, folder: memory.add([f"new {i}" for i in range(40)], ids=[f"new-{i}" for i in range(40)]),
    "update": lambda memory, folder: memory.update("3", text="changed"),
    "delete": lambda memory, folder: memory.delete([str(i) for i in range(20)]),
    "promote": lambda memory, folder: memory.promote("4", "longterm", reason="it is needed"),
    "compact": lambda memory, folder: memory.compact(),
    "backup": lambda memory, folder: memory.backup(folder / "backup.db"),
}
FAULTS = [("write", apsw.FullError), ("write", apsw.IOError), ("sync", apsw.IOError), ("read", apsw.IOError)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the shim's, when closing fails too
@pytest.mark.parametrize("step", WRITES, ids=str)
@pytest.mark.parametrize(("call", "error"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_write_that_the_disk_refuses_is_told_and_leaves_nothing(
    disk: Disk, tmp_path: Path, step: str, call: str, error: type[apsw.Error]
) -> None:
    if (step, call) == ("backup", "read"):
        pytest.skip("an error of a shim that is written in Python comes out of apsw's backup as a SystemError")
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=WordEmbedder(16)) as memory:
        memory.add([f"text {i}" for i in range(60)], ids=[str(i) for i in range(60)])
    with Memory.open(path, embedder=WordEmbedder(16)) as memory:
        before = texts(memory)
    done = False
    for first in (1, 2, 5, 13):
        disk.fault, disk.calls, disk.failed = None, 0, 0
        with Memory.open(path, embedder=WordEmbedder(16)) as memory:
            disk.fault = (call, error, first)
            refused: StoreError | None = None
            try:
                WRITES[step](memory, tmp_path)
                done = True
            except StoreError as error_of_ours:
                refused = error_of_ours
            disk.fault = None
            assert done or (isinstance(refused, StoreFullError) and str(path) in str(refused))
            # The same handle is usable, and nothing of the call was written.
            found = texts(memory)
            assert list(memory.check()) == []
            if not done:
                assert found == before
                assert memory.get("4")[0].tier == "task"
                assert not (tmp_path / "backup.db").exists()
            assert memory.search("text 30", k=1)[0].id == "30"
        if done:
            break
        assert disk.failed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no limits of resources here")
def test_a_full_disk_under_the_log_takes_nothing_of_what_was_kept(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="there are no limits of resources here")
    program = """
        import resource, logging
        from rlm_memory.errors import StoreError, StoreFullError
        logging.disable()
        with Memory.open(sys.argv[1], embedder=WordEmbedder(16)) as memory:
            memory.add([f"text {i}" for i in range(60)], ids=[str(i) for i in range(60)])
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            size = os.path.getsize(sys.argv[1] + "-wal")
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, limits[1]))
            try:
                memory.add(["long text " * 2000 + str(i) for i in range(30)])
            except StoreFullError as error:
                print("refused")
            assert memory.search("text 7", k=1)[0].id == "7"
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert memory.count() == 60 and memory.check()
            memory.add("one more")
        with Memory.open(sys.argv[1], embedder=WordEmbedder(16)) as memory:
            print(memory.count(), list(memory.check()))
    """
    assert python(program, tmp_path / "memory.db").split("\n")[:2] == ["refused", "61 []"]


def test_reads_that_the_disk_refuses_are_told_and_come_back(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=WordEmbedder(16)) as memory:
        memory.add([f"text {i} " + "x" * 500 for i in range(300)], ids=[str(i) for i in range(300)])
    with Memory.open(path, embedder=WordEmbedder(16)) as memory:
        disk.fault = ("read", apsw.IOError, 1)
        with pytest.raises(StoreFullError, match="could not be read"):
            memory.list(limit=1000)
        with pytest.raises(StoreFullError, match="could not be read"):
            memory.search("text 5")
        disk.fault = None
        assert len(memory.list(limit=1000)) == 300
        assert memory.search("text 5", k=1)


def test_a_store_that_cannot_be_made_says_so(disk: Disk, tmp_path: Path) -> None:
    disk.fault = ("write", apsw.FullError, 1)
    with pytest.raises(StoreFullError, match="disk is full"):
        Memory.open(tmp_path / "memory.db", embedder=None)
    disk.fault = None
    with Memory.open(tmp_path / "memory.db", embedder=None) as memory:
        memory.add("now it can")
        assert memory.check()


def test_of_a_file_that_was_cut_or_flipped_the_rest_is_read_and_the_damage_found(tmp_path: Path) -> None:
    """Nothing that comes out is another text than was stored, unless check tells of damage."""
    path, copy = tmp_path / "sound.db", tmp_path / "damaged.db"
    with Memory.open(path, embedder=WordEmbedder(16)) as memory:
        memory.add([f"text {i} " + "x" * 900 for i in range(400)], ids=[str(i) for i in range(400)])
    image = path.read_bytes()
    expected = {str(i): f"text {i} " + "x" * 900 for i in range(400)}
    pages = len(image) // 8192
    found_some = 0
    for page in range(1, pages, max(1, pages // 40)):
        for damaged in (image[: page * 8192], flipped(image, page * 8192)):
            copy.write_bytes(damaged)
            logging.disable()
            try:
                memory = Memory.open(copy, embedder=None)
            except (StoreCorruptError, StoreError):
                continue
            finally:
                logging.disable(logging.NOTSET)
            with memory:
                sound = bool(memory.check())
                read = {}
                for id in expected:
                    try:
                        read.update({node.id: node.text for node in memory.get(id, as_written=True)})
                    except RLMError:
                        sound = sound and False
                        continue
                if sound:
                    assert read == expected, page
                found_some += bool(read) and not sound
            for extra in tmp_path.glob("damaged.db-*"):
                extra.unlink()
    assert found_some > 5


def flipped(image: bytes, start: int) -> bytes:
    """Return the image with every bit of some bytes after the start of a page turned over."""
    return image[:start] + bytes(255 - byte for byte in image[start : start + 64]) + image[start + 64 :]
