"""The README keeps its word: its programs run, and what it names is there."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import rlm_memory
from chat_server import ChatServer
from rlm_memory.filters import Operator

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text("utf-8")
NEEDS = {
    "wordllama": ("wordllama", "offline"),
    "langchain_rlm": ("langchain_core", "langchain"),
    "llamaindex_rlm": ("llama_index.core", "llamaindex"),
    "integrations.rlms": ("rlm", "rlms"),
}
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def provider(socket_enabled: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model that answers with a cell, in the place of OpenAI's."""
    with ChatServer(lambda asked: "```repl\nanswer['content'] = '1883'\nanswer['ready'] = True\n```") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)  # rlms leaves its own server's socket to Python
        yield


@pytest.mark.parametrize("program", PROGRAMS, ids=[f"program {number}" for number in range(1, len(PROGRAMS) + 1)])
def test_program_of_the_readme_runs(
    program: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (module, extra) in NEEDS.items():
        if name in program:
            pytest.importorskip(module, reason=f"needs the extra {extra}")
    if "integrations.rlms" in program:
        request.getfixturevalue("provider")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, str(README), "exec"), {"__name__": "readme"})


def test_readme_has_a_program_of_ten_lines() -> None:
    assert 8 <= len(PROGRAMS[0].splitlines()) <= 10


def test_every_public_name_is_in_the_readme() -> None:
    assert [name for name in rlm_memory.__all__ if not re.search(rf"\b{name}\b", TEXT)] == []


@pytest.mark.parametrize("adapter", ["langchain_rlm", "llamaindex_rlm"])
def test_every_class_of_an_adapter_is_in_the_readme(adapter: str) -> None:
    pytest.importorskip(NEEDS[adapter][0], reason=f"needs the extra {NEEDS[adapter][1]}")
    names = [name for name in importlib.import_module(adapter).__all__ if name not in {"Narrowing", "SearchOptions"}]
    assert [name for name in names if not re.search(rf"`{name}`", TEXT)] == []


def test_every_operator_of_filters_is_in_the_readme() -> None:
    assert [operator for operator in Operator if f"`{operator}`" not in TEXT] == []


def test_prose_has_one_sentence_a_line() -> None:
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    plain = [line for line in prose.splitlines() if line and line[0] not in "#|-$`"]
    assert [line for line in plain if re.search(r"[a-z)][.!?] [A-Z]", line)] == []
