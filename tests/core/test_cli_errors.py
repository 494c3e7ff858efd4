"""What somebody is told who asks rlm-memory for what it cannot do, and that nothing is left behind of it."""

from __future__ import annotations

import io
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")
pytest.importorskip("rich", reason="the command line needs the extra cli")

from command_line import Cli, Result
from embedding_server import EmbeddingServer
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


# -- files that are not what was meant ------------------------------------------------------------------------------


@pytest.fixture
def filled(cli: Cli, tmp_path: Path) -> Cli:
    """A store with one node, `ada`."""
    with Memory.open(tmp_path / "memory.db", embedder=None) as memory:
        memory.add("Ada likes tea.", ids=["ada"])
    return cli


IMPORTS = {
    "missing": (None, "Cannot read given: No such file or directory. Check the name and its folder."),
    "a folder": ("folder", "given is a folder; expected a file that export wrote."),
    "gzip": (b"\x1f\x8b\x08", "given is compressed by gzip; unpack it first: gunzip -c FILE | rlm-memory import -."),
    "empty": (b"", 'given is empty; expected line 1 to be {"format": "rlm-memory nodes", "version": 2, ...}.'),
    "text": (b"Ada\n", "given is no export: line 1 is not JSON: Expecting value, at column 1; expected"),
    "other JSON": (b'{"a": 1}\n', "given is no export: line 1 is not its header, {"),
}


@pytest.mark.parametrize(("content", "told"), IMPORTS.values(), ids=IMPORTS.keys())
def test_what_cannot_be_imported_is_told_before_a_store_is_made(
    cli: Cli, tmp_path: Path, content: bytes | str | None, told: str
) -> None:
    if content == "folder":
        (tmp_path / "given").mkdir()
    elif isinstance(content, bytes):
        (tmp_path / "given").write_bytes(content)
        piped = refused(cli("import", "-", stdin=content), 2)
        assert piped.startswith(told.replace("given", "standard input"))
    assert refused(cli("import", "given"), 2).startswith(told)
    assert not (tmp_path / "memory.db").exists()


# -- stores that a command would have made --------------------------------------------------------------------------

FAULTS = {
    "no JSON": b'{"node": \n',
    "unknown": b'{"nodes": {}}\n',
    "cut short": b"",
}


def export_of(tmp_path: Path, *texts: str) -> bytes:
    with Memory.open(tmp_path / "other.db", embedder=None) as memory:
        memory.add(list(texts), ids=list(texts))
        memory.export(tmp_path / "nodes.jsonl")
    content = (tmp_path / "nodes.jsonl").read_bytes()
    (tmp_path / "nodes.jsonl").unlink()
    (tmp_path / "other.db").unlink()
    return content


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_an_import_with_a_fault_in_it_leaves_no_store(cli: Cli, tmp_path: Path, fault: bytes) -> None:
    begun = b"".join(export_of(tmp_path, "tea", "milk").splitlines(keepends=True)[:-1])
    assert "Line " in refused(cli("import", "-", stdin=begun + fault), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="has no such permissions")
def test_an_import_makes_one_file_that_its_owner_alone_reads(cli: Cli, tmp_path: Path) -> None:
    assert cli("import", "-", stdin=export_of(tmp_path, "tea")).out == "1 node stored.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["memory.db"]
    assert (tmp_path / "memory.db").stat().st_mode & 0o777 == 0o600


def test_an_import_joins_a_store_that_was_made_meanwhile(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = export_of(tmp_path, "tea")
    link = os.link

    def link_late(source: str, target: str) -> None:
        with Memory.open(tmp_path / "memory.db", embedder=None) as memory:
            memory.add("milk", ids=["milk"])
        link(source, target)

    monkeypatch.setattr(os, "link", link_late)
    assert cli("import", "-", stdin=content).code == 0
    assert {node["id"] for node in cli("list", "--json").documents} == {"tea", "milk"}
    assert [path.name for path in tmp_path.iterdir()] == ["memory.db"]


def test_an_import_makes_a_store_where_a_file_has_one_name_alone(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = export_of(tmp_path, "tea")

    def link(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted", source)

    monkeypatch.setattr(os, "link", link)
    assert cli("import", "-", stdin=content).code == 0
    assert [node["id"] for node in cli("list", "--json").documents] == ["tea"]
    assert [path.name for path in tmp_path.iterdir()] == ["memory.db"]


@pytest.mark.skipif(sys.platform == "win32", reason="deletes no file that is open")
def test_an_import_is_not_mixed_with_the_log_of_a_store_that_was_deleted(cli: Cli, tmp_path: Path) -> None:
    content = export_of(tmp_path, "tea")
    with Memory.open(tmp_path / "gone.db", embedder=None) as memory:
        memory.add("milk", ids=["milk"])
        shutil.copy(tmp_path / "gone.db-wal", tmp_path / "memory.db-wal")
    (tmp_path / "gone.db").unlink()
    assert cli("import", "-", stdin=content).code == 0
    assert [node["id"] for node in cli("list", "--json").documents] == ["tea"]
    assert cli("check").code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["add", "-"], "No API key"),
        (["add", "-", "--embedder", "openai:unknown-model"], "No API key"),
        (["add", "-", "--embedder", "model2vec:./nowhere"], ""),
        (["demo", "--embedder", "openai"], "No API key"),
        (["demo", "--embedder", "openai", "--db", "new.db"], "No API key"),
        (["reembed", "--to", "openai"], "there is no store to read"),
        (["reembed", "--pending", "--embedder", "openai"], "there is no store to read"),
        (["search", "tea", "--embedder", "openai"], "there is no store to read"),
    ],
)
def test_a_command_without_a_working_embedder_leaves_no_store(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    if "--db" not in arguments and arguments[0] == "demo":
        monkeypatch.delenv("RLM_MEMORY_DB")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = cli(*arguments, stdin="Ada likes tea.")
    assert result.code in {2, 3}
    assert told in result.err
    assert list(tmp_path.iterdir()) == []


def test_a_passage_that_is_too_long_to_embed_leaves_no_store(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert "Item 0 has" in refused(cli("add", "-", "--size", "100000", stdin="word " * 19_000), 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.loopback
@pytest.mark.enable_socket
def test_a_new_store_embeds_each_passage_once(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddingServer(dimensions=8) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        texts = [f"Passage number {number}." for number in range(300)]
        (tmp_path / "first.txt").write_text("\n\n".join(texts[:200]))
        arguments = ["add", "first.txt", "-", "--size", "20", "--embedder", "openai:its-own"]
        assert cli(*arguments, stdin="\n\n".join(texts[200:])).code == 0
        sent = server.inputs
    assert sorted(sent) == sorted(texts)
    assert cli("check").code == 0


@pytest.mark.parametrize("command", ["export", "backup"])
def test_a_file_to_write_that_cannot_be_made_is_told(filled: Cli, tmp_path: Path, command: str) -> None:
    told = refused(filled(command, "nowhere/file"), 2)
    assert "nowhere/file: the file cannot be made" in told
    assert "check that its folder exists" in told
    (tmp_path / "there").touch()
    assert "exists already; choose another path" in refused(filled(command, "there"), 2)
    assert (tmp_path / "there").read_bytes() == b""


@pytest.mark.parametrize("command", ["export", "import"])
def test_an_empty_name_is_no_path(filled: Cli, command: str) -> None:
    assert "'' is not the path of a file" in refused(filled(command, ""), 2)


NAMING_X = ["explain x", "promote x task --reason y", "pin x", "unpin x", "restore x", "show x", "log x"]


@pytest.mark.parametrize("command", NAMING_X)
def test_an_id_that_is_not_there_is_told_in_the_same_words_everywhere(filled: Cli, command: str) -> None:
    told = refused(filled("--namespace", "anna", *command.split()), 2)
    assert told == "There is no node 'x' in namespace 'anna'. List the ids: Memory.list, rlm-memory list."


def test_all_ids_that_are_not_there_are_named(filled: Cli) -> None:
    assert "no node 'x', 'y' in namespace 'default'" in refused(filled("show", "x", "ada", "y"), 2)


def test_a_list_after_a_node_that_is_gone_starts_again(filled: Cli) -> None:
    assert "no node 'x' to go on after; start again" in refused(filled("list", "--after", "x"), 2)


@pytest.mark.parametrize("command", ["stats", "add -", "delete x --yes", "backup copy.db"])
def test_a_folder_is_no_store(cli: Cli, tmp_path: Path, command: str) -> None:
    told = refused(cli("--db", str(tmp_path), "--embedder", "none", *command.split()), 3)
    assert told == f"{tmp_path} is a folder, and a store is a file; name one in it, such as {tmp_path / 'memory.db'}"


# -- stores that are none -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["add -", "stats", "import nodes.jsonl", "demo", "delete x --yes"])
def test_a_store_in_memory_is_of_no_use_to_a_command(filled: Cli, command: str) -> None:
    filled("export", "nodes.jsonl")
    told = refused(filled("--db", ":memory:", "--embedder", "none", *command.split()), 2)
    assert told == (
        "A store in memory begins empty and is gone when the command ends; name a file, or a postgresql:// URL."
    )


@pytest.mark.parametrize("places", [(":memory:", "to.db"), ("memory.db", ":memory:")])
def test_a_store_in_memory_is_not_copied(filled: Cli, tmp_path: Path, places: tuple[str, str]) -> None:
    assert "A store in memory cannot be copied by its place" in refused(filled("copy", *places), 2)
    assert not (tmp_path / "to.db").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--db", "memory.db", "copy", "to.db"], "copy takes two stores by their places, FROM and TO, and not --db m"),
        (["copy", "memory.db", "to.db", "--db", "other.db"], "FROM and TO, and not --db other.db"),
        (["copy", "memory.db"], "Missing argument 'TO'. See: rlm-memory copy --help"),
        (["copy", "memory.db", "to.db", "--namespace", "n"], "or those of --only NAME, and not --namespace"),
    ],
)
def test_options_that_a_copy_would_not_heed_are_refused(
    filled: Cli, tmp_path: Path, arguments: list[str], told: str
) -> None:
    assert told in refused(filled(*arguments), 2)
    assert not (tmp_path / "to.db").exists()


# -- permissions, which root has all of -----------------------------------------------------------------------------


def without_rights(*arguments: str) -> Result:
    """Run a command in a process that may not do what permissions forbid."""
    command = [sys.executable, "-m", "rlm_memory.cli", *arguments]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may do everything, and there is no setpriv to give that up")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def closed(filled: Cli, tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be written, with a store that may not be written either."""
    folder = tmp_path / "closed"
    folder.mkdir()
    shutil.copy(tmp_path / "memory.db", folder / "memory.db")
    (folder / "memory.db").chmod(0o400)
    folder.chmod(0o500)
    yield folder
    folder.chmod(0o700)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such permissions")
def test_what_this_user_may_not_write_is_read_and_told(closed: Path) -> None:
    db = ["--db", str(closed / "memory.db")]
    assert without_rights(*db, "show", "ada").code == 0
    told = refused(without_rights(*db, "pin", "ada"), 3)
    assert "the file, or its folder, may not be written by this user; check their permissions" in told
    for command in ("export", "backup"):
        told = refused(without_rights(*db, command, str(closed / "file")), 2)
        assert "the file cannot be made" in told
        assert "check that its folder exists and may be written" in told
    assert [path.name for path in closed.iterdir()] == ["memory.db"]


# -- ends that nobody waits for -------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="tells no reader that went away")
@pytest.mark.parametrize("command", ["--help", "export --help", "stats", "export -", "list"])
def test_a_reader_that_is_gone_from_the_start_ends_the_command_quietly(filled: Cli, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rlm_memory.cli", *command.split()],
            stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_an_output_that_cannot_be_written_is_told(filled: Cli) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rlm_memory.cli", "export", "-"],
            stdout=full, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (3, b"rlm-memory: The output: No space left on device.\n")


@pytest.mark.skipif(sys.platform == "win32", reason="limits no files")
def test_an_export_that_the_disk_does_not_take_is_told_and_leaves_nothing(filled: Cli, tmp_path: Path) -> None:
    with Memory.open(tmp_path / "memory.db", embedder=None) as memory:
        memory.add([f"text {i} " * 100 for i in range(500)])
    limited = ["sh", "-c", 'ulimit -f 400 && exec "$0" "$@"', sys.executable, "-m", "rlm_memory.cli"]
    done = subprocess.run(
        [*limited, "export", "nodes.jsonl"], capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    told = refused(Result(done.returncode, done.stdout, done.stderr), 3)
    assert told.startswith("nodes.jsonl: the file could not be read or written (File too large), and nothing is left")
    assert not (tmp_path / "nodes.jsonl").exists()


class _Interrupted(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise KeyboardInterrupt


@pytest.mark.parametrize("command", ["add - --embedder none", "import -"])
def test_an_interrupted_command_says_so(
    cli: Cli, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(_Interrupted()))
    assert run(command.split()) == 130
    assert capfd.readouterr() == ("", "rlm-memory: interrupted\n")
    assert list(tmp_path.iterdir()) == []
