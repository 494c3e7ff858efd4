"""The whole demonstration, as `make demo` runs it: the command line, both frameworks, a session that is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlm_memory import Memory

MAKEFILE = Path(__file__).parents[1] / "Makefile"

pytest.importorskip("wordllama", reason="the demonstration embeds with wordllama, of the extra [offline]")
pytest.importorskip("typer", reason="the demonstration begins with the command line, of the extra [cli]")
pytest.importorskip("langchain_core", reason="the demonstration goes through LangChain")
pytest.importorskip("llama_index.core", reason="the demonstration goes through LlamaIndex")


def run(*arguments: str, encoding: str = "utf-8") -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, encoding=encoding, check=False, timeout=120,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_frameworks_answer_from_the_file_that_the_command_line_has_made(tmp_path: Path) -> None:
    store = str(tmp_path / "memory.db")
    assert "language reference" in run("rlm_memory.cli", "--db", store, "demo")
    langchain = run("langchain_rlm.demo", store)
    assert "signals the use of a comma for a thousands separator" in " ".join(langchain.split())
    assert [line.split()[-1] for line in langchain.splitlines() if "  after" in line] == [
        "session",
        "session",
        "longterm",
    ]
    llamaindex = run("llamaindex_rlm.demo", store)
    assert 'the "finally" clause is also executed' in " ".join(llamaindex.split())
    assert max(map(len, (langchain + llamaindex).splitlines())) <= 90
    assert "'source': 'LangChain demo'}, tier longterm" in llamaindex
    assert "task ? session" in run("langchain_rlm.demo", store, encoding="ascii")  # a terminal without arrows
    run("rlm_memory.cli", "--db", store, "check")  # exits with 1 if it finds a problem


@pytest.mark.parametrize(
    ("part", "argument", "expected"),
    [
        ("langchain_rlm", None, "an earlier part"),
        ("langchain_rlm", "missing.db", "there is no store to read"),
        ("llamaindex_rlm", "notes.md", "is not an SQLite database"),
        ("llamaindex_rlm", "other.db", "run that first"),
    ],
)
def test_a_part_out_of_turn_names_what_goes_before_in_one_line(
    tmp_path: Path, part: str, argument: str | None, expected: str
) -> None:
    (tmp_path / "notes.md").write_text("Not a store.")
    with Memory.open(tmp_path / "other.db", embedder=None) as memory:
        memory.add("Nothing of the demonstration.")
    arguments = [] if argument is None else [str(tmp_path / argument)]
    done = subprocess.run(
        [sys.executable, "-m", f"{part}.demo", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode in {2, 3}
    assert done.stderr.startswith(f"{part}.demo: ")
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout
    assert not (tmp_path / "missing.db").exists()


def test_a_session_that_is_killed_goes_on_with_its_variables() -> None:
    told = run("rlm_memory.checkpoints.demo")
    if sys.platform != "win32":  # where the exit code does not name the signal
        assert "exit code -9" in told
    rows = [re.split(r"  +", line.strip()) for line in told.splitlines()]
    variables = {row[0]: row[1:] for row in rows if len(row) == 3}
    assert {name for name, (before, after) in variables.items() if before == after} == {
        "sales", "total", "share", "shares", "seen"
    }  # fmt: skip
    assert variables["sales"][0] == "{'2024': [12, 19], '2025': [31, 8]}"
    assert variables["log"] == ["an open file", "not restored, and says why"]
    assert variables["draft"] == ["'not in a checkpoint yet'", "not there"]
    assert "NOT restored: log (_io.TextIOWrapper)" in told
    assert "Pending: llm (safe to repeat)" in told
    assert "turn 6 uses what is back: best = '2025'" in told
    assert "?  Seventy in all." in run("rlm_memory.checkpoints.demo", encoding="ascii")  # a terminal without arrows


def test_a_folder_that_cannot_hold_checkpoints_ends_the_demonstration_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("A file, and no folder.")
    done = subprocess.run(
        [sys.executable, "-m", "rlm_memory.checkpoints.demo", str(tmp_path / "taken")],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert str(tmp_path / "taken") in done.stderr


@pytest.mark.parametrize("part", ["rlm-memory", "langchain_rlm", "llamaindex_rlm", "rlm_memory.checkpoints"])
def test_make_demo_tells_every_part(part: str) -> None:
    if not MAKEFILE.exists():
        pytest.skip("the Makefile is in the checkout alone")
    recipe = MAKEFILE.read_text("utf-8").partition("\ndemo:")[2].partition("\n\n")[0]
    command = "rlm-memory --db $$store demo" if part == "rlm-memory" else f"python -m {part}.demo"
    assert command in recipe
