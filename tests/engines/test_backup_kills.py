"""What a process leaves that is killed while it writes a backup, and who clears it away."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from processes import started
from rlm_memory import Memory

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are not stopped like that there")

BACKUP = """
with Memory.open(sys.argv[1], embedder=None, sweep=False) as memory:
    print("begins", flush=True)
    memory.backup(sys.argv[2])
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A store that takes a while to copy."""
    path = tmp_path / "memory.db"
    with Memory.open(path, embedder=None) as memory:
        memory.add("Ada likes green tea", ids=["ada"])
    connection = apsw.Connection(str(path))
    connection.execute(
        "INSERT INTO key_values (namespace, collection, key, value) "
        """VALUES (1, 'c', 'k', '"' || hex(zeroblob(30000000)) || '"')"""
    )
    connection.close()
    return path


def partials(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if ".partial" in entry.name}


def stopped_in_a_backup(path: Path, copy: Path) -> subprocess.Popen[str]:
    """Return a process that stands still in the middle of a backup."""
    for _ in range(10):
        process = started(BACKUP, path, copy)
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        while not partials(copy.parent) and process.poll() is None:
            pass
        process.send_signal(signal.SIGSTOP)
        if partials(copy.parent) and not copy.exists():
            return process
        process.kill()
        process.communicate()
        copy.unlink(missing_ok=True)
    raise AssertionError("every backup was done before it could be stopped")


def test_what_a_killed_backup_leaves_is_cleared_by_the_next_to_the_same_path(large: Path) -> None:
    folder = large.parent / "copies"
    folder.mkdir()
    copy = folder / "copy.db"
    process = stopped_in_a_backup(large, copy)
    process.kill()
    process.communicate()
    assert partials(folder)
    bystander = folder / "another.db.123.partial"
    bystander.write_bytes(b"of another file")
    (folder / "copy.db.123.partial").write_bytes(b"of an earlier release")
    with Memory.open(large, embedder=None) as memory:
        memory.backup(copy)
    assert partials(folder) == {bystander.name}
    with Memory.open(copy, embedder=None) as memory:
        assert memory.get("ada")[0].text == "Ada likes green tea"
        assert memory.check()


def test_a_backup_under_way_in_a_living_process_is_let_be(large: Path) -> None:
    folder = large.parent / "copies"
    folder.mkdir()
    process = stopped_in_a_backup(large, folder / "copy.db")
    try:
        under_way = {name for name in partials(folder) if name.endswith(".partial")}
        with Memory.open(large, embedder=None) as memory:
            memory.backup(folder / "copy.db")
        assert under_way <= partials(folder)
    finally:
        process.send_signal(signal.SIGCONT)
        process.communicate()
    assert process.returncode == 0
    assert partials(folder) == set()
    with Memory.open(folder / "copy.db", embedder=None) as memory:
        assert memory.check()
