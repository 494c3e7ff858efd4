"""No private name of another package is used: read from the sources of this one, where that can be seen."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"rlm_memory": "shared/rlm_memory", "langchain_rlm": "langchain_rlm", "llamaindex_rlm": "llamaindex_rlm"}
SOURCES = sorted(path for folder in OURS.values() for path in (ROOT / folder).rglob("*.py"))
if not SOURCES:
    pytest.skip("the sources are in the checkout alone", allow_module_level=True)

DOCUMENTED = frozenset({"_replace", "_asdict", "_fields", "_field_defaults", "_make"})
"""What named tuples offer to everybody, with an underscore so that it is no field."""

HOOKS = {
    # what its retrievers override, and what `as_retriever` puts on them
    "langchain-core": {"_get_ls_params", "_get_retriever_tags"},
    # it has no public way to resume a completion; rlm_memory.integrations.rlms.interface checks what is installed
    "rlms": {
        "_AnswerDict", "_capture_answer", "_check_timeout", "_compact_history", "_completion_turn", "_restore_scaffold",
        "_temp_cwd",
    },
}  # fmt: skip
"""By distribution, private names for which it has no public way. A distribution that is here is bounded above."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__")) and name != "_"


class Names(ast.NodeVisitor):
    """What a module defines, and whose the classes are that it names."""

    def __init__(self) -> None:
        self.defined: set[str] = set()
        self.classes: dict[str, set[str]] = {}

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        of_class = Names()
        for each in node.body:
            of_class.visit(each)
        self.classes[node.name] = of_class.defined
        self.defined |= of_class.defined | {node.name}
        self.classes |= of_class.classes

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.defined.add(node.name)
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.defined.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store):
            self.defined.add(node.attr)
        self.generic_visit(node)


def named(trees: list[ast.Module]) -> Names:
    names = Names()
    for tree in trees:
        names.visit(tree)
    return names


def is_ours(module: str | None, level: int) -> bool:
    return level > 0 or (module or "").split(".")[0] in OURS


def foreign_names(tree: ast.Module) -> Iterator[tuple[str, int, str | None]]:
    """Yield (name, line, private part) of what a module imports from elsewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if not is_ours(alias.name, 0):
                    private = next(filter(is_private, alias.name.split(".")), None)
                    yield alias.asname or alias.name.split(".")[0], node.lineno, private
        elif isinstance(node, ast.ImportFrom) and not is_ours(node.module, node.level):
            for alias in node.names:
                path = f"{node.module}.{alias.name}".split(".")
                private = None if path[0] == "__future__" else next(filter(is_private, path), None)
                yield alias.asname or alias.name, node.lineno, private


def uses(tree: ast.Module, ours: Names) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of private names of others that a module uses."""
    foreign = set()
    for name, line, private in foreign_names(tree):
        foreign.add(name)
        if private is not None:
            yield line, private
    yield from attributes(tree, ours, foreign, None)


def attributes(node: ast.AST, ours: Names, foreign: set[str], inside: ast.ClassDef | None) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of attributes that no class of ours has, or that are asked of what is imported."""
    for child in ast.iter_child_nodes(node):
        yield from attributes(child, ours, foreign, node if isinstance(node, ast.ClassDef) else inside)
    if not (isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in DOCUMENTED):
        return
    owner = node.value
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
        bases = [ast.unparse(base).split("[")[0].split(".")[-1] for base in inside.bases] if inside else []
        theirs = not any(node.attr in defined for base in bases for defined in inherited(base, ours))
    else:
        theirs = node.attr not in ours.defined or (isinstance(owner, ast.Name) and owner.id in foreign)
    if theirs:
        yield node.lineno, node.attr


def inherited(base: str, ours: Names) -> Iterator[set[str]]:
    """Yield what the body of a base defines, if that is one of ours."""
    if base in ours.classes:
        yield ours.classes[base]


TREES = {path: ast.parse(path.read_text("utf-8"), str(path)) for path in SOURCES}
ALL = named(list(TREES.values()))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_name_of_another_package_is_used(path: Path) -> None:
    """B051"""
    allowed = set().union(*HOOKS.values())
    found = [(line, name) for line, name in uses(TREES[path], ALL) if name not in allowed]
    assert found == [], "use what the package makes public, or say in HOOKS why there is no other way"


def test_every_exception_is_used_and_its_package_is_bounded_above() -> None:
    """B051"""
    used = {name for tree in TREES.values() for _, name in uses(tree, ALL)}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    wanted = [line for lines in extras.values() for line in lines]
    for distribution, names in HOOKS.items():
        assert names <= used, f"{names - used} of {distribution} is not used any more"
        bounds = [line for line in wanted if re.match(rf"{distribution}[^a-z-]", line)]
        assert bounds
        assert all("<" in line for line in bounds), bounds


@pytest.mark.parametrize(
    "source",
    [
        "from pandas import _libs",
        "from pandas._libs import lib",
        "import numpy._core as core",
        "import numpy\nnumpy._no_value",
        "def f(cursor): return cursor._adapters",
        "from langchain_core.tools import BaseTool\nclass Ours(BaseTool):\n    def f(self): return self._parse()",
        "from langchain_core.tools import BaseTool\nclass Ours(BaseTool):\n    def _run(self): return super()._run()",
    ],
)
def test_uses_of_private_names_are_seen(source: str) -> None:
    tree = ast.parse(source)
    assert list(uses(tree, named([tree])))


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations",
        "from rlm_memory import _anything",
        "class Ours:\n    def _f(self): return self._f()",
        "class Ours:\n    def _f(self): ...\nclass More(Ours):\n    def _f(self): return super()._f()",
        "def f(value): return value.__class__, value._replace(a=1)",
    ],
)
def test_what_is_ours_or_public_is_let_be(source: str) -> None:
    tree = ast.parse(source)
    assert not list(uses(tree, named([tree])))
