"""Named tuples, with their classes: those come back from any file, since they are made of a name and field names."""

from __future__ import annotations

import types
from collections import namedtuple
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlm_memory.checkpoints.kinds.base import Kind, Parts, UnrestorableError
from rlm_memory.checkpoints.placeholder import Unrestored

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer


def is_namedtuple_class(value: Any) -> bool:
    """Tell whether `collections.namedtuple` made the class and nobody added to it."""
    return _is_namedtuple_class(value)


@lru_cache(maxsize=256)  # making the twin that it is compared with takes as long as saving a thousand of its objects
def _is_namedtuple_class(value: Any) -> bool:
    fields = vars(value).get("_fields")
    if value.__bases__ != (tuple,) or not isinstance(fields, tuple) or "__orig_bases__" in vars(value):
        return False
    try:
        twin = _make(value.__name__, fields, vars(value).get("_field_defaults", {}), value.__module__)
    except (TypeError, ValueError):  # these are not the names of fields
        return False
    own, other = vars(value), vars(twin)
    return own.keys() == other.keys() and all(
        own[name].__code__ == other[name].__code__ for name in own if isinstance(own[name], types.FunctionType)
    )


def _make(name: str, fields: Any, defaults: dict[str, Any], module: str | None) -> type:
    given = [defaults[each] for each in fields if each in defaults]
    return namedtuple(name, fields, defaults=given, module=module)


def _documentation(value: Any) -> str:
    return f"{value.__name__}({', '.join(value._fields)})"


def _write_class(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value._field_defaults)], {
        "name": value.__name__,
        "qualname": value.__qualname__,
        "fields": list(value._fields),
        "module": value.__module__,
        "doc": None if value.__doc__ == _documentation(value) else value.__doc__,
    }


def _build_class(slots: Any, data: Any, _: Reader) -> type:
    made = _make(data["name"], data["fields"], slots[0], data["module"])
    made.__qualname__ = data["qualname"]
    if data["doc"] is not None:
        made.__doc__ = data["doc"]
    return made


def _write(value: Any, writer: Writer) -> Parts:
    return [writer.slot(type(value)), *(writer.slot(item) for item in tuple.__iter__(value))], None


def _build(slots: Any, _: Any, __: Reader) -> Any:
    found, *items = slots
    if isinstance(found, Unrestored):
        raise UnrestorableError(f"its class was not restored: {found.unrestored_reason}")
    if not isinstance(found, type) or not is_namedtuple_class(found) or len(items) != len(vars(found)["_fields"]):
        raise UnrestorableError("what is said to be its class is not a named tuple of that length")
    return tuple.__new__(found, items)


NAMEDTUPLE_CLASS = Kind(tag="namedtuple class", write=_write_class, build=_build_class, reads=True)
NAMEDTUPLE = Kind(tag="namedtuple", write=_write, build=_build)
KINDS = (NAMEDTUPLE_CLASS, NAMEDTUPLE)
