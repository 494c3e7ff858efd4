"""The table of types: which kind writes a value, and which kind reads a tag.

A new type is a `Kind` in one of these modules. What NumPy is to others is imported here, because NumPy is required;
pandas, polars and pyarrow are imported when the first of their values, or of their tags, is met.
"""

from __future__ import annotations

import enum
import importlib
from functools import cache
from typing import Any

from rlm_memory.checkpoints.kinds import (
    absent,
    arrays,
    builtin,
    functions,
    instances,
    namedtuples,
    reasons,
    standard,
)
from rlm_memory.checkpoints.kinds.base import AnyKind, UnsavableError
from rlm_memory.checkpoints.placeholder import Unrestored

UNSAVED = absent.UNSAVED_KIND.tag
_OPTIONAL = ("pandas", "polars", "pyarrow")
_MODULES = (absent, arrays, builtin, functions, instances, namedtuples, standard)
_BY_TAG: dict[str, AnyKind] = {kind.tag: kind for module in _MODULES for kind in module.KINDS}
_BY_TYPE: dict[type, AnyKind] = {}
for _kind in _BY_TAG.values():
    for _type in _kind.types:
        _BY_TYPE.setdefault(_type, _kind)


def kind_of(value: Any) -> AnyKind:
    """Return the kind that writes the value.

    Raises:
        UnsavableError: there is none; the message says why.
    """
    kind = type(value)
    if kind is dict:
        return builtin.kind_of_dict(value)
    found = _BY_TYPE.get(kind) or _of_optional(kind)
    if found is not None:
        return found
    if kind is Unrestored:
        return absent.kind_for(value)
    if issubclass(kind, type):
        return namedtuples.NAMEDTUPLE_CLASS if namedtuples.is_namedtuple_class(value) else functions.CLASS
    if issubclass(kind, tuple) and namedtuples.is_namedtuple_class(kind):
        return namedtuples.NAMEDTUPLE
    if standard.is_plain_exception(kind):
        return standard.EXCEPTION
    if issubclass(kind, enum.Enum) or not reasons.is_bound_to_process(kind):
        found = instances.kind_of_instance(value)
    if found is None:
        raise UnsavableError(reasons.reason_for(value))
    return found


def kind_tagged(tag: str) -> AnyKind | None:
    """Return the kind that reads the tag, or None where nobody does or its library is not installed."""
    found = _BY_TAG.get(tag)
    if found is None and (package := tag.partition(".")[0]) in _OPTIONAL:
        return _optional_kinds(package)[1].get(tag)
    return found


def _of_optional(kind: type) -> AnyKind | None:
    package = kind.__module__.partition(".")[0]
    return _optional_kinds(package)[0].get(kind) if package in _OPTIONAL else None


@cache
def _optional_kinds(package: str) -> tuple[dict[type, AnyKind], dict[str, AnyKind]]:
    module = importlib.import_module(f"{__name__}.{package}_kinds")
    by_type = {each: kind for kind in module.KINDS for each in kind.types}
    return by_type, {kind.tag: kind for kind in module.KINDS}
