"""The text of the cells that ran: functions and classes come back by their source, not by bytecode."""

from __future__ import annotations
import __future__

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

_FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    _FUTURE_FLAGS |= getattr(__future__, _name).compiler_flag

FILENAME = "<cell>"
Place = tuple[str, int, int]
"""Where a code object is in its cell: its qualified name, its first line, and how many like it come before."""


class Sources:
    """The cells that were run in one namespace, newest last; each text is kept once."""

    def __init__(self) -> None:
        self._cells: dict[str, None] = {}
        self._classes: dict[int, tuple[type, str]] = {}

    def add(self, source: str, namespace: dict[str, Any] | None = None) -> None:
        """Keep the text of a cell that ran; classes that it left in the namespace are remembered with it."""
        self._cells.pop(source, None)
        self._cells[source] = None
        for name in class_names(source) if namespace else ():
            found = (namespace or {}).get(name)
            if isinstance(found, type):
                self.add_class(found, source)

    def add_class(self, found: type, source: str) -> None:
        """Remember that this text has the statement that made the class."""
        if id(found) not in self._classes:  # a cell that ran later can only name an older class
            self._classes[id(found)] = (found, source)

    def of_function(self, function: FunctionType) -> tuple[str, Place] | None:
        """Return the text that a function was compiled from and its place there, or None."""
        code = function.__code__
        for source in self._candidates(code.co_filename):
            place = place_of(code, source)
            if place is not None:
                return source, place
        return None

    def of_class(self, found: type) -> str | None:
        """Return the text whose class statement made the class, or None."""
        known = self._classes.get(id(found))
        if known is not None:
            return known[1]
        codes = [value.__code__ for value in vars(found).values() if isinstance(value, FunctionType)]
        written = [code for code in codes if code.co_qualname.startswith(found.__qualname__ + ".")]
        filenames = {code.co_filename for code in written}
        for source in self._candidates(*filenames):
            if found.__qualname__ not in class_names(source):
                continue
            if all(place_of(code, source) is not None for code in written):
                return source
        return None

    def _candidates(self, *filenames: str) -> Iterator[str]:
        yield from reversed(self._cells)
        for filename in filenames:
            lines = linecache.getlines(filename)
            if lines:
                yield "".join(lines)


def place_of(code: CodeType, source: str) -> Place | None:
    """Return where a text has exactly this code, or None."""
    if code.co_name not in source and not code.co_name.startswith("<"):
        return None
    flags = code.co_flags & _FUTURE_FLAGS
    for place, found in _places(source, flags).items():
        if found == code:
            return place
    return None


def code_at(source: str, place: Place, flags: int) -> CodeType | None:
    """Return the code object at a place of a cell, compiled anew, or None where this Python has none there."""
    return _places(source, flags & _FUTURE_FLAGS).get(place)


@lru_cache(maxsize=256)
def _places(source: str, flags: int) -> dict[Place, CodeType]:
    """Map each place of a cell to its code object; a cell that does not compile has none.

    `dont_inherit`: without it this module's own `from __future__ import annotations` would change what is compiled.
    """
    places: dict[Place, CodeType] = {}
    try:
        todo = [compile(source, FILENAME, "exec", flags=flags, dont_inherit=True)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return places
    for code in todo:  # grows while it is walked
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                nth = 0
                while (constant.co_qualname, constant.co_firstlineno, nth) in places:
                    nth += 1
                places[constant.co_qualname, constant.co_firstlineno, nth] = constant
                todo.append(constant)
    return places


def future_flags(source: str) -> int:
    """Return the flags of the `from __future__` imports that a cell has."""
    try:
        return compile(source, FILENAME, "exec", dont_inherit=True).co_flags & _FUTURE_FLAGS
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0


@lru_cache(maxsize=256)
def class_statements(source: str) -> dict[str, ast.ClassDef]:
    """Map the name of each class of a cell, also of one inside an `if` or another class, to its last statement."""
    statements: dict[str, ast.ClassDef] = {}

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for statement in body:
            match statement:
                case ast.ClassDef(name=name):
                    statements[prefix + name] = statement
                    collect(statement.body, f"{prefix}{name}.")
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    continue  # a class made by a call has more behind it than its statement
                case _:
                    for field in ("body", "orelse", "finalbody"):
                        collect(getattr(statement, field, []), prefix)

    try:
        collect(ast.parse(source).body, "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return statements


def class_names(source: str) -> list[str]:
    """Return the names of the classes that a cell defines."""
    return list(class_statements(source)) if "class" in source else []
