"""The commands rlm-memory checkpoints: what they print, and the codes they end with."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")
pytest.importorskip("rich", reason="the command line needs the extra cli")

from command_line import Cli, Result
from rlm_memory.checkpoints import CheckpointNotFoundError, CheckpointStore, RLMCheckpoint, RLMSession
from rlm_memory.cli import run
from rlm_memory.repl import Repl


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """Two checkpoints of one session, one of another."""
    store = CheckpointStore(tmp_path / "root", trust="key")
    session = RLMSession("my/session", store=store, every=1)
    repl = Repl(session)
    repl.run("def score(n):\n    return n\nx = [1, 2, 3]\nlines = (n for n in x)\nold = 'a' * 100")
    session.add_usage("m", 10, 1, cost=0.25)
    session.begin_operation("mail", "to Ada", idempotent=False)
    repl.run("x.append(4)\ny = (1, {2})\ndel old")
    RLMSession("other", store=store).checkpoint()
    return store


@pytest.fixture
def cli(store: CheckpointStore, capfd: pytest.CaptureFixture[str]) -> Cli:
    def call(command: str, *arguments: str | Path) -> Result:
        code = run(["checkpoints", command, str(store.root), *map(str, arguments)])
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


def ids(store: CheckpointStore) -> list[str]:
    return [info.checkpoint_id for info in store.list("my/session")]


def test_list_names_every_checkpoint_oldest_first(cli: Cli, store: CheckpointStore) -> None:
    store.pin(ids(store)[0], reason="a good one")
    documents = cli("list", "--json", "--session", "my/session").documents
    assert [each["checkpoint_id"] for each in documents] == ids(store)
    assert [each["turn"] for each in documents] == [1, 2]
    assert documents[1]["variables"] == {"score": "function", "x": "list", "lines": "generator", "y": "tuple"}
    assert documents[1]["parent_id"] == ids(store)[0]
    assert (documents[1]["cost_so_far"], documents[0]["pinned"]) == (0.25, "a good one")
    heading, *rows = [line.split("\t") for line in cli("list").out.splitlines()]
    assert heading == ["turn", "variables", "issues", "cost", "size", "created", "id", "session"]
    assert {row[-1] for row in rows} == {"my/session (kept: a good one)", "my/session", "other"}


@pytest.mark.parametrize("which", ["session", "id", "beginning"])
def test_show_takes_a_session_an_id_or_its_beginning(which: str, cli: Cli, store: CheckpointStore) -> None:
    named = {"session": "my/session", "id": ids(store)[1], "beginning": ids(store)[1][:12]}[which]
    [document] = cli("show", named, "--json").documents
    assert document["checkpoint_id"] == ids(store)[1]
    values = {each["name"]: (each["type"], each["value"]) for each in document["variables"]}
    assert values["x"] == ("list", "[1, 2, 3, 4]")
    assert values["y"] == ("tuple", "(1, {2})")
    assert values["score"] == ("function", "def score(n):")
    assert values["lines"][0] == "generator"
    assert [issue["path"] for issue in document["issues"]] == ["lines"]
    assert document["pending_operations"] == ["mail: 'to Ada'"]
    assert document["usage"]["models"]["m"]["cost"] == 0.25


def test_show_prints_what_a_person_wants_to_know(cli: Cli) -> None:
    result = cli("show", "my/session")
    assert result.code == 0
    assert "cost\t$0.2500\n" in result.out
    assert "pending\tmail: 'to Ada'\n" in result.out
    assert "issue\tlines (generator): " in result.out
    assert "x\tlist\t[1, 2, 3, 4]\n" in result.out


def test_show_runs_nothing_that_is_stored_and_no_terminal_order_gets_through(
    cli: Cli, store: CheckpointStore, tmp_path: Path
) -> None:
    session = RLMSession("hostile", store=store)
    path = tmp_path / "ran"
    Repl(session).run(
        f"class A:\n    import pathlib\n    pathlib.Path({str(path)!r}).touch()\ntext = '\\x1b[2J'\na = A()"
    )
    path.unlink()
    session.checkpoint()
    result = cli("show", "hostile")
    assert result.code == 0
    assert not path.exists()
    assert "\x1b" not in result.out


def test_diff_tells_what_changed_from_the_first_to_the_second(cli: Cli, store: CheckpointStore) -> None:
    old, new = ids(store)
    expected = {"added": ["y"], "removed": ["old"], "changed": ["x"], "retyped": [], "realiased": []}
    assert cli("diff", old, new, "--json").documents == [expected]
    assert "changed\tx\t[1, 2, 3]\t[1, 2, 3, 4]\n" in cli("diff", old, new).out
    assert cli("diff", old, old).out == "The variables are the same.\n"


def test_verify_finds_the_damaged_file_and_ends_with_one(cli: Cli, store: CheckpointStore) -> None:
    assert cli("verify").out == "3 files read: all sound.\n"
    damaged = store.list("my/session")[0].path
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    result = cli("verify", "--json")
    [report] = result.documents
    assert (result.code, report["ok"], report["files"]) == (1, False, 3)
    assert [problem["path"] for problem in report["problems"]] == [str(damaged)]
    assert cli("verify", "--session", "other").code == 0
    assert cli("verify").code == 1


def test_verify_checks_signatures_when_it_has_the_key(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "right").write_text("key\n")
    (tmp_path / "wrong").write_text("another\n")
    assert cli("verify", "--key-file", tmp_path / "right").code == 0
    result = cli("verify", "--key-file", tmp_path / "wrong")
    assert (result.code, result.out.count("signed with another key")) == (1, 3)
    assert cli("verify", "--key-file", tmp_path / "none").code == 2


def test_exported_file_is_whole_and_replaces_nothing(cli: Cli, store: CheckpointStore, tmp_path: Path) -> None:
    target = tmp_path / "one.rlmc"
    result = cli("export", "my/session", target, "--json")
    assert result.documents == [{"checkpoint_id": ids(store)[1], "path": str(target), "bytes": target.stat().st_size}]
    assert RLMCheckpoint.load(target, trust="key").repl_state["score"](7) == 7
    again = cli("export", "my/session", target)
    assert again.code == 2
    assert "is there already" in again.err
    nowhere = cli("export", "my/session", tmp_path / "nowhere" / "one.rlmc")
    assert (nowhere.code, nowhere.out, nowhere.err.count("\n")) == (2, "", 1)
    assert "the file cannot be made; check that its folder exists" in nowhere.err


def test_a_session_to_verify_that_is_not_there_is_no_sound_one(cli: Cli, store: CheckpointStore) -> None:
    result = cli("verify", "--session", "nobody")
    assert (result.code, result.out) == (2, "")
    assert f"There is no session 'nobody' in {store.root}. List them" in result.err
    with pytest.raises(CheckpointNotFoundError, match="'nobody'"):
        store.verify("nobody")


@pytest.mark.parametrize("which", ["nothing", "", "abc"])
def test_a_checkpoint_that_is_not_there_is_an_error_of_one_line(which: str, cli: Cli, store: CheckpointStore) -> None:
    result = cli("show", which)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert f"rlm-memory checkpoints list {store.root}\n" in result.err


def test_a_folder_that_is_not_there_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["checkpoints", "list", str(tmp_path / "none")]) == 2
    assert "There is no folder" in capfd.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_damaged_checkpoint_is_neither_listed_nor_shown(cli: Cli, store: CheckpointStore) -> None:
    info = store.list("other")[0]
    info.path.write_bytes(info.path.read_bytes()[:-1])
    assert cli("show", "other").code == 2
    assert "other" not in cli("list").out


def test_a_folder_without_checkpoints_is_not_called_sound(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Not a checkpoint.")
    assert run(["checkpoints", "verify", str(tmp_path)]) == 2
    assert capfd.readouterr() == (
        "",
        f"rlm-memory: There is no checkpoint in {tmp_path}; expected the folder of a CheckpointStore.\n",
    )
    assert run(["checkpoints", "list", str(tmp_path)]) == 0
    assert f"There is no checkpoint in {tmp_path}" in capfd.readouterr().err
