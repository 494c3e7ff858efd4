"""The help of each command says what it does, gives examples that run, and what the exit codes mean."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer", reason="the command line needs the extra cli")
pytest.importorskip("rich", reason="the command line needs the extra cli")
pytest.importorskip("wordllama", reason="the examples name the embedder of the extra offline")

from rlm_memory import Memory
from rlm_memory.checkpoints import CheckpointStore, RLMSession
from rlm_memory.cli import run
from rlm_memory.cli.commands import command
from rlm_memory.cli.examples import EXAMPLES, every_command

PATHS = [path for path, _ in every_command(command())]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the examples take to be there: a store, notes, an export, a session with two checkpoints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLM_MEMORY_DB", "memory.db")
    Path("notes.md").write_text("Ada is allergic to nuts.\n", "utf-8")
    for name in ("memory.db", "work.db"):
        with Memory.open(name, embedder="wordllama") as memory:
            memory.add(["Bo lives in Rome.", "Eve likes tea."], ids=["rome", "tea"])
            memory.promote("rome", "archive", reason="long ago")
    with Memory.open("work.db", embedder="wordllama") as memory:
        memory.export("given.jsonl")
    with RLMSession("monday", store=CheckpointStore("checkpoints"), every=1) as session:
        session.namespace["n"] = 1
        session.end_turn()
    return tmp_path


@pytest.mark.parametrize("path", PATHS)
def test_help_says_what_a_command_does_with_examples_and_exit_codes(
    path: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run([*path.split(), "--help"]) == 0
    shown = capfd.readouterr().out
    assert len(EXAMPLES[path]) > 0
    assert [line for line in EXAMPLES[path] if line not in shown] == []
    assert "Exit codes: 0 done" in " ".join(shown.split())
    assert "--json" in shown
    assert ("--policy" in shown) == (path.split()[:1] not in (["copy"], ["checkpoints"]))


@pytest.mark.parametrize("path", PATHS)
def test_usage_is_one_line_in_which_each_argument_has_a_name(
    path: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run([*path.split(), "--help"]) == 0
    [usage] = re.findall(r"Usage: (.*?) *$", capfd.readouterr().out, re.MULTILINE)
    program = " ".join(["rlm-memory", *path.split(), r"\[OPTIONS\]"])
    assert re.fullmatch(rf"{program}( COMMAND \[ARGS\]\.\.\.| (\{{?[A-Z]+\}}?|\[[A-Z]+\])(\.\.\.)?)*", usage), usage


def test_help_of_copy_asks_for_both_places(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["copy", "--help"]) == 0
    shown = capfd.readouterr().out
    assert "[TO]" not in shown
    assert len(re.findall(r"^│ \* +(?:FROM|TO) .*\[required\]", shown, re.MULTILINE)) == 2


def test_examples_are_of_commands_that_are_there() -> None:
    assert sorted(EXAMPLES) == sorted(PATHS)


@pytest.mark.parametrize("example", sorted({line for lines in EXAMPLES.values() for line in lines}))
def test_example_runs(example: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [info.checkpoint_id for info in CheckpointStore("checkpoints").list()]
    names = {"ID": "rome", "SESSION": "monday", "FIRST": ids[0], "SECOND": ids[-1]}
    if " import " in example:
        Path("given.jsonl").rename("nodes.jsonl")
    stdin = Path("nodes.jsonl").read_bytes() if "gunzip" in example else b"a line\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    words = shlex.split(
        next(part for part in example.split(" | ") if part.startswith("rlm-memory")).partition(" && ")[0]
    )
    arguments = [names.get(word, word) for word in words[1:]]
    confirmed = ["--yes"] if arguments[0] == "delete" and "--yes" not in arguments else []
    assert run([*arguments, *confirmed]) == 0


def test_filters_of_the_help_find_a_file_by_its_name(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["add", "notes.md"]) == 0
    for command_name in ("search", "list", "delete"):
        assert run([command_name, "--help"]) == 0
    filters = set(re.findall(r"""'(\{"source".*?\})'""", capfd.readouterr().out))
    assert len(filters) > 1
    for where in filters:
        assert run(["list", "--where", re.sub(r"[a-z]+\.md", "notes.md", where)]) == 0
        assert "Ada is allergic" in capfd.readouterr().out, where


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        pytest.param(["add", "notes.md", "--db", "new.db"], "--embedder wordllama", id="no key"),
        pytest.param(["add", "notes.md", "--embedder", "worldllama"], '"wordllama"', id="unknown embedder"),
        pytest.param(["add", "note.md"], "Check the name and its folder", id="no such file"),
        pytest.param(["add", "."], "*.md", id="a folder"),
        pytest.param(
            ["--db", "nowhere/new.db", "add", "notes.md"], "check that its folder exists", id="no such folder"
        ),
        pytest.param(["--db", "new.db", "search", "nuts"], "Check the name and its folder", id="no such store"),
        pytest.param(["--db", "notes.md", "stats"], "check the name", id="no store"),
        pytest.param(["search", "nuts", "--embedder", "openai:x"], "reembed --to EMBEDDER", id="another model"),
        pytest.param(["promote", "nobody", "longterm", "--reason", "x"], "rlm-memory list", id="unknown id"),
        pytest.param(["promote", "rome", "longterm"], "'--reason'. See: rlm-memory promote --help", id="no reason"),
        pytest.param(["serach", "nuts"], "Did you mean 'search'? See: rlm-memory --help", id="unknown command"),
    ],
)
def test_error_of_a_beginner_says_what_to_do(
    arguments: list[str],
    advice: str,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert run(arguments) in {2, 3}
    told = capfd.readouterr()
    assert told.out == ""
    assert advice in told.err
    assert len(told.err.splitlines()) == 1
