"""The README is a front door: short, with a program of ten lines; and every public name stands on some page."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import rlm_memory

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text("utf-8")
NEEDS = {"langchain_rlm": ("langchain_core", "langchain"), "llamaindex_rlm": ("llama_index.core", "llamaindex")}
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def names() -> str:
    page = ROOT / "docs" / "names.md"
    if not page.exists():
        pytest.skip("the pages are in the checkout alone")
    return page.read_text("utf-8")


def test_readme_has_a_program_of_ten_lines() -> None:
    assert 8 <= len(PROGRAMS[0].splitlines()) <= 10


def test_readme_is_a_front_door() -> None:
    assert len(TEXT.splitlines()) <= 210


def test_every_public_name_is_on_the_page_of_names() -> None:
    assert [name for name in rlm_memory.__all__ if not re.search(rf"`{name}`", names())] == []


@pytest.mark.parametrize("adapter", sorted(NEEDS))
def test_every_class_of_an_adapter_is_on_the_page_of_names(adapter: str) -> None:
    pytest.importorskip(NEEDS[adapter][0], reason=f"needs the extra {NEEDS[adapter][1]}")
    public = importlib.import_module(adapter).__all__
    assert [name for name in public if f"`{name}`" not in names()] == []


def test_every_benchmark_is_named_on_a_page() -> None:
    programs = sorted((ROOT / "tests" / "bench").glob("*.py"))
    if not programs or not (ROOT / "docs").exists():
        pytest.skip("the benchmarks are in the checkout alone")
    pages = TEXT + "".join(page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md"))
    assert "tests/bench/peers.py" in TEXT
    assert {f"tests/bench/{name}.py" for name in ("quality", "storage", "peers")} <= set(
        re.findall(r"tests/bench/\w+\.py", pages)
    )
