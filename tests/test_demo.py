"""The whole demonstration, as `make demo` runs it: one file, the command line and both frameworks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("wordllama", reason="the demonstration embeds with wordllama, of the extra [offline]")
pytest.importorskip("typer", reason="the demonstration begins with the command line, of the extra [cli]")
pytest.importorskip("langchain_core", reason="the demonstration goes through LangChain")
pytest.importorskip("llama_index.core", reason="the demonstration goes through LlamaIndex")


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_frameworks_answer_from_the_file_that_the_command_line_has_made(tmp_path: Path) -> None:
    store = str(tmp_path / "memory.db")
    assert "language reference" in run("rlm_memory.cli", "--db", store, "demo")
    langchain = run("langchain_rlm.demo", store)
    assert "signals the use of a comma for a thousands separator" in langchain
    assert [line.split()[-1] for line in langchain.splitlines() if "  after" in line] == [
        "session",
        "session",
        "longterm",
    ]
    llamaindex = run("llamaindex_rlm.demo", store)
    assert 'the "finally" clause is also executed' in llamaindex
    assert "'source': 'LangChain demo'}, tier longterm" in llamaindex
    run("rlm_memory.cli", "--db", store, "check")  # exits with 1 if it finds a problem
