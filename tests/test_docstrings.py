"""The public classes of the adapters explain themselves as their frameworks' own do, with examples to copy."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from typing import Any

import pytest

NEEDS = {"langchain_rlm": ("langchain.agents", "langgraph"), "llamaindex_rlm": ("llama_index.core", "llamaindex")}
ALWAYS = ("Setup", "Instantiate")
SEARCH = ("Search|Usage", "Search with filter", "Async")
SECTIONS = {
    "langchain_rlm": {
        "RLMVectorStore": (
            "Key init args.*", "Add Documents", "Delete Documents", *SEARCH, "Search with score", "Use as Retriever"
        ),
        "RLMRetriever": ("Key init args.*", *SEARCH, "Use within a chain"),
        "RLMStore": ("Key init args.*", "Put, get, delete", *SEARCH, "Use in a graph"),
        "RLMSaver": ("Use in a graph", "Search with filter", "Async"),
        "RLMSerializer": ("Dump and load", "Use in a checkpointer"),
        "RLMCallbackHandler": ("Use in a chain", "Feedback", "Async"),
        "AsyncRLMCallbackHandler": ("Async, use in a chain",),
        "RLMGraphCallbackHandler": ("Use in a graph", "Async"),
        "RLMMemoryMiddleware": ("Use in an agent", "Search with filter", "Async"),
        "RLMPythonREPLTool": ("Invoke", "Async", "Use in an agent"),
    },
    "llamaindex_rlm": {
        "RLMVectorStore": ("Add", "Delete", *SEARCH, "Search with score", "Use as a retriever, in an index"),
        "RLMRetriever": (*SEARCH, "Use in a query engine"),
        "RLMChatStore": ("Add messages, async", "Use in a memory"),
        "RLMSyncChatStore": ("Add messages", "Use in a memory", "Async"),
        "RLMKVStore": ("Put, get, delete", "Async", "Use in a document store"),
        "RLMMemoryBlock": ("Use in a memory, async", "Search with filter"),
        "RLMEventHandler": ("Use in a query engine", "Feedback", "Async"),
        "RLMSpanHandler": ("Use in a query engine", "Async"),
        "RLMSerializer": ("Serialize and deserialize", "Use in a workflow"),
        "RLMCodeInterpreter": ("Run code", "Async", "Use in an agent"),
    },
}  # fmt: skip
CLASSES = [pytest.param(adapter, name, id=f"{adapter}.{name}") for adapter in SECTIONS for name in SECTIONS[adapter]]


def public(adapter: str) -> Any:
    module, extra = NEEDS[adapter]
    pytest.importorskip(module, reason=f"needs the extra {extra}")
    return importlib.import_module(adapter)


def keywords_of_calls(value: object) -> bool:
    """A TypedDict has keys and nothing to instantiate."""
    return isinstance(value, type) and issubclass(value, dict)


@pytest.mark.parametrize("adapter", SECTIONS)
def test_every_public_class_has_its_sections_named_here(adapter: str) -> None:
    module = public(adapter)
    classes = {name: value for name in module.__all__ if inspect.isclass(value := getattr(module, name))}
    assert {name for name, value in classes.items() if not keywords_of_calls(value)} == set(SECTIONS[adapter])


@pytest.mark.parametrize(("adapter", "name"), CLASSES)
def test_docstring_has_the_sections_of_the_template(adapter: str, name: str) -> None:
    text = inspect.getdoc(getattr(public(adapter), name)) or ""
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    wanted = (*ALWAYS, *SECTIONS[adapter][name])
    assert [each for each in wanted if not any(re.fullmatch(each, title) for title in titles)] == []
    assert re.search(r"Install `rlm-memory\[\w+\]`", text)


@pytest.mark.parametrize(("adapter", "name"), CLASSES)
def test_arguments_are_explained(adapter: str, name: str) -> None:
    made = getattr(public(adapter), name)
    told = (inspect.getdoc(made) or "") + (inspect.getdoc(made.__init__) or "")
    arguments = list(inspect.signature(made.__init__).parameters)[1:]
    inherited = {"name", "tags", "metadata", "kwargs"}  # those are LangChain's own
    assert [each for each in arguments if each not in inherited and not re.search(rf"\b{each}\b", told)] == []


@pytest.mark.parametrize(("adapter", "name"), CLASSES)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_examples_run_as_they_are_copied(adapter: str, name: str) -> None:
    """With nothing but what they import themselves; pytest runs them with all that their module knows."""
    text = inspect.getdoc(getattr(public(adapter), name)) or ""
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert len(examples.examples) > 1
    said: list[str] = []
    failed = doctest.DocTestRunner(verbose=False).run(examples, out=said.append).failed
    assert failed == 0, "".join(said)
