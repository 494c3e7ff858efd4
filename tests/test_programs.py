"""The programs of the README and of the pages run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from chat_server import ChatServer

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))  # they are in the checkout alone
NEEDS = {
    "wordllama": ("wordllama", "offline"),
    "langchain_rlm": ("langchain_core", "langchain"),
    "llamaindex_rlm": ("llama_index.core", "llamaindex"),
    "create_agent": ("langchain.agents", "langgraph"),
    "integrations.rlms": ("rlm", "rlms"),
}


PROGRAMS = [
    pytest.param(program, id=f"{page.stem} {number}")
    for page in (README, *PAGES)
    for number, program in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL), start=1
    )
]


@pytest.fixture
def provider(socket_enabled: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A model that answers with a cell, in the place of OpenAI's."""
    with ChatServer(lambda asked: "```repl\nanswer['content'] = '1883'\nanswer['ready'] = True\n```") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)  # rlms leaves its own server's socket to Python
        yield


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_of_a_page_runs(
    program: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, (module, extra) in NEEDS.items():
        if name in program:
            pytest.importorskip(module, reason=f"needs the extra {extra}")
    if "integrations.rlms" in program:
        request.getfixturevalue("provider")
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "<docs>", "exec"), {"__name__": "docs"})
