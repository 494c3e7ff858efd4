"""What somebody is told who asks rlm-memory for what it cannot do, and that nothing is left behind of it."""

from __future__ import annotations

import io
import lzma
import sys
from pathlib import Path

import apsw
import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")
pytest.importorskip("rich", reason="the command line needs the extra cli")

from command_line import Cli, Result
from rlm_memory import Memory
from rlm_memory.cli import run
from rlm_memory.engines.sqlite.schema import migrations

OLD = Path(__file__).parents[1] / "migrations" / "schema-1.db.xz"
NEWEST = migrations()[-1][0]


@pytest.fixture
def cli(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in the test's folder, where `memory.db` is the store unless the arguments name one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLM_MEMORY_DB", "memory.db")

    def call(*arguments: str, stdin: str | bytes = "") -> Result:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        code = run(arguments)
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


def refused(result: Result, code: int) -> str:
    """Return the one line that an error is."""
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith("rlm-memory: ")
    assert result.err.count("\n") == 1
    assert "Errno" not in result.err
    return result.err.removeprefix("rlm-memory: ").strip()


# -- stores of other releases ---------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    path.write_bytes(lzma.decompress(OLD.read_bytes()))
    return path


def version(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.pragma("user_version"))
    finally:
        connection.close()


READING = ["stats", "search tea --embedder none", "list", "show ada", "check", "backup copy.db", "export -", "log",
           "explain ada", "sessions", "sweep --dry-run"]  # fmt: skip
WRITING = ["promote ada task --reason x", "pin ada", "unpin ada", "sweep", "delete ada --yes", "compact"]


@pytest.mark.parametrize("command", READING)
def test_who_reads_an_older_store_is_told_the_command_that_brings_it_up_to_date(
    cli: Cli, old: Path, command: str
) -> None:
    told = refused(cli(*command.split()), 3)
    assert told.startswith(f"{old} has schema version 1, this release reads {NEWEST}. ")
    assert f"rlm-memory --db {old} upgrade" in told
    assert [path.name for path in old.parent.iterdir()] == ["memory.db"]
    assert version(old) == 1
    assert cli("upgrade").code == 0
    assert cli(*command.split()).code == 0


@pytest.mark.parametrize("command", WRITING)
def test_who_writes_to_an_older_store_brings_it_up_to_date(cli: Cli, old: Path, command: str) -> None:
    assert cli(*command.split()).code == 0
    assert version(old) == NEWEST
    assert version(old.with_name("memory.db.schema-1.backup")) == 1


def test_upgrade_tells_what_it_did_and_does_it_once(cli: Cli, old: Path) -> None:
    assert cli("upgrade").out == f"{old} is brought up to date.\n"
    assert cli("upgrade").out == f"{old} is up to date already.\n"
    assert cli("upgrade", "--json").documents == [{"location": str(old), "upgraded": False}]
    assert version(old.with_name("memory.db.schema-1.backup")) == 1


@pytest.mark.parametrize("command", [*READING, *WRITING, "upgrade", "add -", "import -"])
def test_a_store_of_a_newer_release_asks_for_that_release(cli: Cli, tmp_path: Path, command: str) -> None:
    with Memory.open(tmp_path / "memory.db", embedder=None) as memory:
        memory.add("Ada likes tea.", ids=["ada"])
        memory.export(tmp_path / "nodes.jsonl")
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    connection.pragma("user_version", 99)
    connection.close()
    told = refused(cli(*command.split(), stdin=(tmp_path / "nodes.jsonl").read_bytes()), 3)
    assert "pip install -U rlm-memory" in told
    assert version(tmp_path / "memory.db") == 99


def test_upgrade_makes_no_store(cli: Cli, tmp_path: Path) -> None:
    assert "there is no store to read" in refused(cli("upgrade"), 3)
    assert list(tmp_path.iterdir()) == []
