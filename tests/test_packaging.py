"""What is installed: the core alone, the extras by name, and what happens where one is missing."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import rlm_memory
from rlm_memory import Memory

FRAMEWORKS = ("langchain", "langchain_core", "langgraph", "llama_index", "typer", "rich", "wordllama", "model2vec")


@pytest.fixture
def distribution() -> metadata.Distribution:
    try:
        return metadata.distribution("rlm-memory")
    except metadata.PackageNotFoundError:
        pytest.skip("rlm-memory is on the path and not installed")


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_core_imports_no_framework_and_no_extra() -> None:
    result = python(f"import sys, rlm_memory; print(sorted(set({FRAMEWORKS}) & sys.modules.keys()))")
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_core_works_where_no_extra_is_installed(store_path: Path) -> None:
    result = python(
        f"import sys; sys.modules.update(dict.fromkeys({FRAMEWORKS}))\n"
        "from rlm_memory import Memory\n"
        f"with Memory.open({str(store_path)!r}, embedder=None) as memory:\n"
        "    memory.add(['red', 'blue'], embeddings=[[1.0, 0.0], [0.0, 1.0]])\n"
        "    print(memory.search('blue', k=1)[0].text, memory.search(embedding=[1.0, 0.1], k=1)[0].text)"
    )
    assert (result.stdout, result.stderr) == ("blue red\n", "")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_command_without_its_extra_names_the_pip_command(missing: str) -> None:
    result = python(
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['rlm-memory', 'list']\n"
        "from rlm_memory.cli import main; main()"
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "rlm-memory: The command rlm-memory needs an optional dependency. "
        "Install it with: pip install 'rlm-memory[cli]'\n"
    )


def test_command_is_installed_under_its_name(distribution: metadata.Distribution) -> None:
    [command] = [entry for entry in distribution.entry_points if entry.group == "console_scripts"]
    assert (command.name, command.load()) == ("rlm-memory", __import__("rlm_memory.cli", fromlist=["main"]).main)


def test_sqlite_vec_is_new_enough_and_loads(distribution: metadata.Distribution) -> None:
    """B114, B142: earlier wheels for arm64 held a library of another machine, which only loading tells."""
    assert any(re.match(r"sqlite-vec\b.*>=0\.1\.9", requirement) for requirement in distribution.requires or ())
    with Memory.open(":memory:", embedder=None) as memory:
        memory.add(["near", "far"], embeddings=[[1.0, 0.0], [-1.0, 0.0]])
        assert memory.check()
        assert [hit.text for hit in memory.search(embedding=[1.0, 0.0], k=1)] == ["near"]


def test_readme_lists_the_platforms() -> None:
    """B169, B171: pip stops where sqlite-vec has no wheel, so the README says where that is."""
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    for platform in ("Linux (glibc", "musl", "macOS", "Windows (x86-64)", "Windows on ARM"):
        assert platform in readme


def test_types_are_shipped() -> None:
    assert (Path(rlm_memory.__file__).parent / "py.typed").is_file()


def test_extras_that_errors_and_readme_name_exist(distribution: metadata.Distribution) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    table = readme.partition("| extra | brings |")[2].partition("\n\n")[0]
    first_column = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| "))
    named = set(re.findall(r"`(\w+)`", first_column))
    named |= {extra for listed in re.findall(r"\.\[([a-z,]+)\]", readme) for extra in listed.split(",")}
    sources = "".join(path.read_text("utf-8") for path in Path(rlm_memory.__file__).parent.rglob("*.py"))
    named |= set(re.findall(r'MissingExtraError\([^()]*"(\w+)"\)', sources))
    assert named >= {"cli", "offline", "dev"}
    assert named - set(distribution.metadata.get_all("Provides-Extra") or ()) == set()


@pytest.mark.parametrize(
    "name", ["RLMGraphCallbackHandler", "RLMMemoryMiddleware", "RLMSaver", "RLMSerializer", "RLMStore"]
)
def test_what_needs_langgraph_names_its_extra_without_it(name: str) -> None:
    pytest.importorskip("langchain_core", reason="needs the extra langchain")
    result = python(
        "import sys; sys.modules.update({'langgraph': None, 'langchain': None})\n"
        "from rlm_memory.errors import MissingExtraError\n"
        f"try:\n    from langchain_rlm import {name}\n"
        "except MissingExtraError as error:\n    print(error)"
    )
    assert (
        result.stdout == f"{name} needs an optional dependency. Install it with: pip install 'rlm-memory[langgraph]'\n"
    )


@pytest.mark.parametrize("package", ["rlm_memory", "rlm_memory.checkpoints", "langchain_rlm", "llamaindex_rlm"])
def test_type_checkers_see_a_use_of_every_public_name(package: str) -> None:
    """`typing_api.py` is what mypy and pyright check; it is read here and not run."""
    needed = {"langchain_rlm": "langchain_core", "llamaindex_rlm": "llama_index.core"}
    if package in needed:
        pytest.importorskip(needed[package], reason="needs the extra of the adapter")
    tree = ast.parse((Path(__file__).parent / "typing_api.py").read_text("utf-8"))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert [name for name in importlib.import_module(package).__all__ if name not in used] == []


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "pyproject.toml"
    if not path.exists():
        pytest.skip("pyproject.toml is in the checkout alone")
    return tomllib.loads(path.read_text("utf-8"))


def test_llamahub_is_told_every_class_where_it_is_imported_from(project: dict[str, Any]) -> None:
    hub = project["tool"]["llamahub"]
    pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")
    module = importlib.import_module(hub["import_path"])
    classes = {name for name in module.__all__ if isinstance(getattr(module, name), type)}
    assert set(hub["class_authors"]) == classes
    assert all(hub["class_authors"].values())
    assert hub["contains_example"] is any(Path(__file__).parents[1].glob("notebooks/*llamaindex*.ipynb"))


def test_classifiers_are_of_the_versions_that_are_asked_for(project: dict[str, Any]) -> None:
    classifiers = project["project"]["classifiers"]
    versions = [name.rpartition(" ")[2] for name in classifiers if re.search(r"Python :: 3\.\d+$", name)]
    assert project["project"]["requires-python"] == f">={versions[0]}"
    assert versions == [f"3.{minor}" for minor in range(11, 11 + len(versions))]
    assert "Typing :: Typed" in classifiers


def test_entry_point_is_a_function_that_is_there(project: dict[str, Any]) -> None:
    pytest.importorskip("typer", reason="the command needs the extra cli")
    [(name, target)] = project["project"]["scripts"].items()
    module, _, function = target.partition(":")
    assert name == "rlm-memory"
    assert callable(getattr(importlib.import_module(module), function))
