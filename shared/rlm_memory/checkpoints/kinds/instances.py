"""Objects of classes that are written in Python: plain ones, dataclasses, enums, pydantic models, exceptions.

An object is rebuilt without its `__init__`, from its class and its attributes. Whether a file may do so with a class
is up to the permissions: any class for a signed and trusted file, a list of classes that hold data alone for others.
"""

from __future__ import annotations

import builtins
import enum
import sys
from collections.abc import Callable
from types import GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from rlm_memory.checkpoints.kinds.base import AnyKind, Kind, MutableKind, Parts, UnrestorableError, UnsavableError
from rlm_memory.checkpoints.placeholder import Unrestored

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer

_HEAP_TYPE = 1 << 9
_C_PARTS = (MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType)
_SECRETS = {"pydantic.types:SecretStr", "pydantic.types:SecretBytes"}
_FIXED: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
_FILLED: dict[type, Callable[[Any], Any]] = {
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    bytearray: lambda value: bytes(memoryview(value)),
}
"""Built-in classes that Python classes derive from, and what an object holds as one of them, past any override."""


def kind_of_instance(value: Any) -> AnyKind | None:
    """Return the kind of an object whose class is written in Python, or None.

    Raises:
        UnsavableError: the object holds a secret.
    """
    kind = type(value)
    if f"{kind.__module__}:{kind.__qualname__}" in _SECRETS:
        raise UnsavableError("a secret is not written to disk; provide it anew")
    if isinstance(kind, enum.EnumMeta):
        return ENUM
    if _is_model(kind):
        return MODEL
    base = _base_of(kind)
    if base is None:
        return None
    return EXTENDED if base in _FIXED else INSTANCE


def _is_model(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _base_of(kind: type) -> Any:
    """Return the built-in class that objects of a Python class are made by, or None where that is some C code."""
    for base in kind.__mro__:
        if base is object or base in _FIXED or base in _FILLED:
            return base
        new = vars(base).get("__new__")
        if base.__flags__ & _HEAP_TYPE and (new is None or isinstance(new, staticmethod)) and not _has_c_parts(base):
            continue
        plain = issubclass(base, BaseException) and base.__basicsize__ == BaseException.__basicsize__
        return BaseException if plain else None
    return None


def _has_c_parts(kind: type) -> bool:
    """Tell whether a class has methods or properties in C of its own: so have files since Python 3.12, on the heap."""
    return any(
        isinstance(part, _C_PARTS) and part.__objclass__ is kind and name not in {"__dict__", "__weakref__"}
        for name, part in vars(kind).items()
    )


def _write_instance(value: Any, writer: Writer) -> Parts:
    kind = type(value)
    base = _base_of(kind)
    content: Any = None
    if base is BaseException:
        content = [value.args, value.__cause__, value.__context__, value.__suppress_context__]
        if value.__traceback__ is not None:
            writer.note("its traceback is not saved: the frames it leads to end with the process")
    elif base is not None and base is not object:
        content = (_FIXED | _FILLED)[base](value)
    return [writer.slot(kind), writer.slot(content), writer.slot(_state(value) or None)], None


def _state(value: Any) -> dict[str, Any]:
    """Return the attributes of an object: of its `__dict__` and of its slots."""
    state: dict[str, Any] = {}
    for kind in type(value).__mro__:
        for name in _slot_names(kind):
            try:
                state[name] = vars(kind)[name].__get__(value)
            except AttributeError:  # the slot is empty
                continue
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        if not state:
            return own
        state.update(own)
    return state


def _slot_names(kind: type) -> list[str]:
    names = vars(kind).get("__slots__", ())
    names = (names,) if isinstance(names, str) else tuple(names)
    mangled = (f"_{kind.__name__.lstrip('_')}{n}" if n.startswith("__") and not n.endswith("__") else n for n in names)
    return [name for name in mangled if name not in {"__dict__", "__weakref__"} and name in vars(kind)]


def class_of(slot: Any, reader: Reader) -> Any:
    """Return the class that a slot means, if its objects may be rebuilt.

    Raises:
        UnrestorableError: it is not there, or the file is not trusted with it.
    """
    found = reader.value(slot)
    if isinstance(found, Unrestored):
        raise UnrestorableError(f"its class was not restored: {found.unrestored_reason}")
    if not isinstance(found, type):
        raise UnrestorableError("what is said to be its class is not a class")
    if not reader.permissions.may_restore(found):
        name = f"{found.__module__}.{found.__qualname__}"
        raise UnrestorableError(f"objects of {name} are rebuilt only if it is allowed, or the file signed and trusted")
    return found


def _make_instance(slots: Any, _: Any, reader: Reader) -> Any:
    found = class_of(slots[0], reader)
    base = _base_of(found)
    if base is None or base in _FIXED:
        raise UnrestorableError(f"objects of {found.__qualname__} are not made in this way")
    return base.__new__(found)


def _make_extended(slots: Any, _: Any, reader: Reader) -> Any:
    found, content = class_of(slots[0], reader), reader.value(slots[1])
    base = _base_of(found)
    if base not in _FIXED or type(content) is not base:
        raise UnrestorableError(f"objects of {found.__qualname__} are not made in this way")
    return base.__new__(found, content)


def _fill_instance(made: Any, slots: Any, _: Any) -> None:
    content = slots[1]
    match _base_of(type(made)):
        case builtins.BaseException:
            made.args, made.__cause__, made.__context__, made.__suppress_context__ = content
        case builtins.list | builtins.bytearray as base:
            base.extend(made, content)
        case builtins.dict | builtins.set as base:
            base.update(made, content)
    _set_state(made, slots[2] or {})


def _fill_extended(made: Any, slots: Any, _: Any) -> None:
    _set_state(made, slots[2] or {})


def _set_state(made: Any, state: dict[str, Any]) -> None:
    """Set attributes without calling code of the class: a frozen dataclass would refuse, a property would run."""
    names = {name: kind for kind in reversed(type(made).__mro__) for name in _slot_names(kind)}
    for name, value in state.items():
        if name in names:
            vars(names[name])[name].__set__(made, value)
        else:
            object.__getattribute__(made, "__dict__")[name] = value


def _write_enum(value: enum.Enum, writer: Writer) -> Parts:
    return [writer.slot(type(value)), writer.slot(value.value)], value.name


def _build_enum(slots: Any, name: Any, reader: Reader) -> enum.Enum:
    found = slots[0]
    if isinstance(found, Unrestored):
        raise UnrestorableError(f"its class was not restored: {found.unrestored_reason}")
    if not isinstance(found, enum.EnumMeta):
        raise UnrestorableError("what is said to be its class is not an enum")
    member = found.__members__.get(name) if isinstance(name, str) else None
    if member is None and issubclass(found, enum.Flag):
        member = found(slots[1])
    if member is None or (type(member.value) is type(slots[1]) and member.value != slots[1]):
        raise UnrestorableError(f"{found.__qualname__} has no member {name} with that value")
    return member


# Pydantic models keep more than their attributes; validators are not run again: they ran when the model was made.

_MODEL_PARTS = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def _write_model(value: Any, writer: Writer) -> Parts:
    return [writer.slot(type(value)), *(writer.slot(getattr(value, part, None)) for part in _MODEL_PARTS)], None


def _make_model(slots: Any, _: Any, reader: Reader) -> Any:
    found = class_of(slots[0], reader)
    if not _is_model(found):
        raise UnrestorableError(f"{found.__qualname__} is not a pydantic model")
    return found.__new__(found)


def _fill_model(made: Any, slots: Any, _: Any) -> None:
    for part, value in zip(_MODEL_PARTS, slots[1:], strict=True):
        object.__setattr__(made, part, value)


INSTANCE = MutableKind(
    tag="instance",
    write=_write_instance,
    make=_make_instance,
    fill=_fill_instance,
    head=lambda slots: slots[:1],
    reads=True,
    defines_hash=True,
)
EXTENDED = MutableKind(
    tag="extended",
    write=_write_instance,
    make=_make_extended,
    fill=_fill_extended,
    head=lambda slots: slots[:2],
    reads=True,
    defines_hash=True,
)
MODEL = MutableKind(
    tag="model",
    write=_write_model,
    make=_make_model,
    fill=_fill_model,
    head=lambda slots: slots[:1],
    defines_hash=True,
)
ENUM = Kind(tag="enum", write=_write_enum, build=_build_enum)
KINDS = (INSTANCE, EXTENDED, MODEL, ENUM)
