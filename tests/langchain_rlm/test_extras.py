"""What the package imports, and what it says where an extra is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import langchain_rlm

MISSING = "needs an optional dependency. Install it with: pip install 'rlm-memory[{}]'\n"


def python(program: str) -> str:
    """Return what a program prints in a process of its own."""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == ""
    return result.stdout


def test_langgraph_and_agents_are_imported_when_they_are_used():
    program = "import sys, langchain_rlm; print({'langgraph', 'langchain', 'llama_index'} & sys.modules.keys())"
    assert python(program) == "set()\n"


@pytest.mark.parametrize(
    ("missing", "name"),
    [("langgraph", "RLMStore"), ("langchain", "RLMMemoryMiddleware")],
)
def test_without_langgraph_the_rest_works_and_the_error_names_the_extra(missing: str, name: str):
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from langchain_rlm import RLMRetriever, RLMCallbackHandler\n"
        f"try: from langchain_rlm import {name}\n"
        "except ImportError as error: print(error)"
    )
    assert python(program) == f"{name} {MISSING.format('langgraph')}"


def test_without_langchain_core_the_error_names_the_extra():
    program = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "try: import langchain_rlm\n"
        "except ImportError as error: print(error)"
    )
    assert python(program) == f"langchain_rlm {MISSING.format('langchain')}"


def test_every_public_name_is_there():
    assert all(getattr(langchain_rlm, name).__doc__ for name in langchain_rlm.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = langchain_rlm.nothing  # type: ignore[attr-defined]  # the mistake under test
