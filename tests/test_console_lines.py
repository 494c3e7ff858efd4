"""The lines for a shell in the README and on the pages do what they say, or name what is there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from embedding_server import EmbeddingServer
from rlm_memory import Memory
from rlm_memory.location import VARIABLE

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
if not (ROOT / "docs").exists():
    pytest.skip("the pages are in the checkout alone", allow_module_level=True)

# what a block of another kind is, and what runs it
OTHERS = {"server.md": ["bash", "text", "sql", "sql"]}
SERVER = "postgresql://agent@db.example/memories"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


# a line that stands on two pages is run once
LINES = list(
    dict.fromkeys(
        line.partition(" #")[0].strip()
        for page in PAGES
        for block in blocks(page, "console")
        for line in block.splitlines()
    )
)
COMMANDS = [line for line in LINES if line.startswith("$ rlm-memory ")]
OF_THE_CHECKOUT = [part for line in LINES if line not in COMMANDS for part in line[2:].split(" && ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_is_of_a_kind_that_is_tried(page: Path) -> None:
    kinds = re.findall(r"^```(.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert len(kinds) % 2 == 0
    assert len(kinds) == page.read_text("utf-8").count("```"), "a block that is indented is found by no test"
    assert not any(kinds[1::2]), "a block ends where it should"
    others = [kind for kind in kinds[::2] if kind not in ("python", "console")]
    assert others == OTHERS.get(page.name, [])


def test_lines_for_a_shell_begin_with_its_sign() -> None:
    assert len(COMMANDS) > 8
    assert [line for line in LINES if not line.startswith("$ ")] == []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the lines take to be there: a store with an embedder, notes, a command on the path."""
    for module, extra in (("typer", "cli"), ("rich", "cli"), ("wordllama", "offline")):
        pytest.importorskip(module, reason=f"needs the extra {extra}")
    if sys.platform == "win32":
        pytest.skip("the lines are for a shell of Unix")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "memory.db")
    for name in ("notes", "docs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("Ada is allergic to nuts.\n", "utf-8")
    with Memory.open("memory.db", embedder="wordllama") as memory:
        memory.add(["Eve likes tea."], ids=["ID"], metadatas=[{"source": "a diary.md"}])
    command = tmp_path / "bin" / "rlm-memory"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rlm_memory.cli "$@"\n', "utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    return tmp_path


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.loopback
@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_command_ends_well(
    line: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if SERVER in line:
        url = request.getfixturevalue("postgres_url")
        with Memory.open(url, embedder=None, namespace="anna") as memory:
            memory.add(["Anna plays the cello."])
        line = line.replace(SERVER, url)
    with EmbeddingServer(3072) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        done = subprocess.run(line[2:], shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout or any(folder.glob("*.gz"))
    assert ("openai:" in line) == bool(server.asked)


@pytest.mark.parametrize("line", dict.fromkeys(OF_THE_CHECKOUT))
def test_what_a_line_for_the_checkout_names_is_there(line: str) -> None:
    words = line.replace("'", "").split()
    match words:
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        case ["bash", path] | [".venv/bin/jupyter", "lab", path]:
            assert (ROOT / path).exists()
        case ["export", assignment]:
            variable, _, store = assignment.partition("=")
            assert variable == VARIABLE
            assert f'Memory.open("{store}"' in blocks(ROOT / "README.md", "python")[0]
        case ["python3", "-m", "venv", ".venv"]:
            pass
        case [".venv/bin/pip", "install", "-e", what, *_]:
            named = re.fullmatch(r"\.\[([\w,]+)\]", what)
            assert named
            assert set(named[1].split(",")) <= set(EXTRAS)
        case [".venv/bin/rlm-memory", "--db", "demo.db", "demo"]:
            assert "rlm-memory" in PYPROJECT["project"]["scripts"]
        case [".venv/bin/python", "-m", module, *_]:
            if module.partition(".")[0] in ("langchain_rlm", "llamaindex_rlm"):
                assert (ROOT / (module.replace(".", "/") + ".py")).exists()
            else:
                assert importlib.util.find_spec(module)
        case _:
            pytest.fail(f"nothing is known of this line: {line}")
