"""The judge of the round trips: same types, same values, same identities, or a sentence that says where they part."""

from __future__ import annotations

import struct
import types
from collections import OrderedDict, defaultdict, deque
from decimal import Decimal
from functools import partial
from itertools import zip_longest
from pathlib import PurePath
from typing import Any

import numpy as np

_ABSENT = object()
_PATH_SHOWN = 500
_WITHOUT_IDENTITY = (str, int, float, bytes, complex, type(None))
_FUNCTION_PARTS = ("name", "qualname", "doc", "defaults", "kwdefaults", "annotations", "dict")


def difference(left: Any, right: Any) -> str | None:
    """Return where two graphs of objects differ, or None; nothing recurses, so any depth will do."""
    partners: dict[int, int] = {}
    back: dict[int, int] = {}
    alive: list[Any] = []
    todo: list[tuple[str, Any, Any]] = [("value", left, right)]
    while todo:
        path, one, two = todo.pop()
        if (one is _ABSENT) != (two is _ABSENT):
            return f"{path}: an item is missing"
        if not _same_type(one, two):
            return f"{path}: {type(one)} became {type(two)}"
        if _has_identity(one):
            if id(one) in partners or id(two) in back:
                if partners.get(id(one)) != id(two) or back.get(id(two)) != id(one):
                    return f"{path}: shares its parts with others than before"
                continue
            partners[id(one)], back[id(two)] = id(two), id(one)
            alive += (one, two)
        problem = _value_problem(one, two)
        if problem is not None:
            return f"{path}: {problem}"
        mine, theirs = _parts(one), _parts(two)
        path = path if len(path) < _PATH_SHOWN else path[:_PATH_SHOWN] + "…"
        todo += [(f"{path}{name}", a, b) for (name, a), (_, b) in zip_longest(mine, theirs, fillvalue=("[?]", _ABSENT))]
    return None


def _same_type(one: Any, two: Any) -> bool:
    mine, theirs = type(one), type(two)
    return mine is theirs or (
        (mine.__module__, mine.__qualname__, mine.__mro__[-1]) == (theirs.__module__, theirs.__qualname__, object)
    )


def _has_identity(value: Any) -> bool:
    return not isinstance(value, (*_WITHOUT_IDENTITY, types.ModuleType, types.BuiltinFunctionType))


def _value_problem(one: Any, two: Any) -> str | None:
    match one:
        case bool() | int() | str() | bytes() | bytearray() if type(one) in {bool, int, str, bytes, bytearray}:
            return None if one == two else f"{one!r:.60} became {two!r:.60}"
        case float() if type(one) is float:
            return None if struct.pack(">d", one) == struct.pack(">d", two) else f"{one} became {two}"
        case np.ndarray():
            layout = (one.dtype, one.shape, one.flags.c_contiguous, one.flags.f_contiguous, one.flags.writeable)
            other = (two.dtype, two.shape, two.flags.c_contiguous, two.flags.f_contiguous, two.flags.writeable)
            if layout != other:
                return f"{layout} became {other}"
            return None if one.dtype.hasobject or one.tobytes() == two.tobytes() else "its items changed"
        case np.generic():
            same = one.dtype == two.dtype and one.tobytes() == two.tobytes()
            return None if same else f"{one!r} became {two!r}"
        case Decimal():
            return None if str(one) == str(two) else f"{one} became {two}"
        case deque():
            return None if one.maxlen == two.maxlen else "its maxlen changed"
        case types.FunctionType():
            return None if one.__code__ == two.__code__ else "its code changed"
        case type():
            return None if one.__qualname__ == two.__qualname__ else f"{one} became {two}"
        case types.BuiltinFunctionType() if not isinstance(one.__self__, types.ModuleType):
            return None if one.__name__ == two.__name__ else f"{one} became {two}"
        case types.ModuleType() | types.BuiltinFunctionType():
            return None if one is two else f"{one} became {two}"
    if type(one).__module__.split(".")[0] in {"pandas", "polars", "pyarrow"}:
        return _frame_problem(one, two)
    if not _parts(one) and type(one).__eq__ is not object.__eq__:
        return None if one == two or one != one else f"{one!r:.60} became {two!r:.60}"
    return None


def _frame_problem(one: Any, two: Any) -> str | None:
    package = type(one).__module__.split(".")[0]
    if package == "pandas":
        import pandas as pd

        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, two, check_exact=True, check_freq=True, check_flags=True)
            return None if one.attrs == two.attrs else "its attrs changed"
        if isinstance(one, pd.Series):
            pd.testing.assert_series_equal(one, two, check_exact=True, check_freq=True)
            return None
        if isinstance(one, pd.Index):
            pd.testing.assert_index_equal(one, two, exact=True)
            return None
        return None if one is two or one == two else f"{one!r} became {two!r}"
    if package == "polars":
        same = one.equals(two) and getattr(one, "schema", None) == getattr(two, "schema", None)
        return None if same else "its items changed"
    return None if one.equals(two) else "its items changed"


def _parts(value: Any) -> list[tuple[str, Any]]:
    """Return what is inside a value, in an order that means something; sets are compared by sorting their members."""
    match value:
        case defaultdict():
            return [(".default_factory", value.default_factory), *_items(value)]
        case dict() | OrderedDict():
            return [*_items(value), *_attributes(value)]
        case list() | tuple() | deque():
            return [*((f"[{index}]", item) for index, item in enumerate(value)), *_attributes(value)]
        case set() | frozenset():
            members = sorted(value, key=_order)
            return [(f"{{{index}}}", item) for index, item in enumerate(members)]
        case np.ndarray() if value.dtype.hasobject and value.dtype.names is None:
            return [(f".flat[{index}]", item) for index, item in enumerate(value.ravel().tolist())]
        case types.FunctionType():
            parts = [(f".__{name}__", getattr(value, f"__{name}__")) for name in _FUNCTION_PARTS]
            return [*parts, *(("<cell>", cell) for cell in value.__closure__ or ())]
        case types.CellType():
            return [("", value.cell_contents)]
        case types.BuiltinFunctionType():
            return [(".__self__", value.__self__)]
        case types.MethodType():
            return [(".__func__", value.__func__), (".__self__", value.__self__)]
        case partial():
            return [(".func", value.func), (".args", value.args), (".keywords", value.keywords)]
        case BaseException():
            links = (value.args, value.__cause__, value.__context__, value.__suppress_context__)
            return [*((f".{index}", each) for index, each in enumerate(links)), *_attributes(value)]
        case types.MappingProxyType():
            return _items(value)
        case type() | types.ModuleType() | np.ndarray() | np.generic():
            return []
        case PurePath():  # since Python 3.12 it remembers how it was written down, which changes nothing
            return []
    return _attributes(value)


def _order(member: Any) -> str:
    """Return what sorts the members of a set; the repr of a set in a set has another order in each process."""
    match member:
        case frozenset():
            return f"frozenset{sorted(map(_order, member))}"
        case tuple():
            return f"tuple{[*map(_order, member)]}"
    return f"{type(member)}{member!r}"


def _items(value: Any) -> list[tuple[str, Any]]:
    return [part for key, item in value.items() for part in ((f"<key {key!r:.30}>", key), (f"[{key!r:.30}]", item))]


def _attributes(value: Any) -> list[tuple[str, Any]]:
    if type(value).__module__.split(".")[0] in {"pandas", "polars", "pyarrow", "numpy"}:
        return []
    own = getattr(value, "__dict__", {})
    found = {name: each for name, each in own.items() if isinstance(own, dict)}
    for kind in type(value).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name in vars(kind) and not name.startswith("__") and hasattr(value, name):
                found[name] = getattr(value, name)
    for name in ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
        if hasattr(type(value), "model_fields"):
            found[name] = getattr(value, name, None)
    return [(f".{name}", each) for name, each in found.items()]
