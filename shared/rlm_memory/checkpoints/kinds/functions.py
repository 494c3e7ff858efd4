"""Functions and classes of the REPL, by their source; and what is made of functions.

A function comes back without running anything: its cell is compiled, its code object is picked, and a function is made
of it with the defaults, the closure and the globals that were saved. A class comes back by running its `class`
statement alone. Both only for a file that is signed and trusted; otherwise the text is kept and can be read.
"""

from __future__ import annotations

import ast
import builtins
import dis
import enum
import functools
import operator
import pickle
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rlm_memory.checkpoints.heap import Slot
from rlm_memory.checkpoints.kinds.base import Kind, MutableKind, Parts, UnrestorableError, UnsavableError
from rlm_memory.checkpoints.placeholder import Unrestored
from rlm_memory.checkpoints.sources import (
    FILENAME,
    class_statements,
    code_at,
    future_flags,
    place_of,
)

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer

_GLOBAL_NAMES = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}


def global_names(code: types.CodeType) -> set[str]:
    """Return the names that a piece of code, or one inside it, looks up in its globals."""
    names: set[str] = set()
    todo = [code]
    for each in todo:  # grows while it is walked
        names.update(i.argval for i in dis.get_instructions(each) if i.opname in _GLOBAL_NAMES)
        todo.extend(constant for constant in each.co_consts if isinstance(constant, types.CodeType))
    return names


# Functions


@dataclass(slots=True)
class GlobalsPool:
    """The globals of functions that were not made in the namespace itself: of them, the names that are looked up.

    `rlms`, for one, gives the functions of each cell a dict of their own. Functions that shared one share one again.
    """

    values: dict[str, Any]
    slots: dict[str, Slot] = field(default_factory=dict)


def _write_function(value: types.FunctionType, writer: Writer) -> Parts:
    found = writer.around.sources.of_function(value)
    if found is None:
        raise UnsavableError("its source text is not known: it was not made in a cell that was recorded")
    source, place = found
    annotations = value.__annotations__  # may run code and raise: before anything is admitted
    slots = [
        writer.slot(source),
        writer.slot(_globals_of(value, writer)),
        writer.slot(value.__defaults__),
        writer.slot(value.__kwdefaults__),
        writer.slot(annotations),
        writer.slot(vars(value)),
        *(writer.slot(cell) for cell in value.__closure__ or ()),
    ]
    return slots, {
        "place": list(place),
        "flags": value.__code__.co_flags,
        "name": value.__name__,
        "qualname": value.__qualname__,
        "module": value.__module__,
        "doc": value.__doc__ if value.__doc__ != _documented(value.__code__) else True,
        "free": list(value.__code__.co_freevars),
    }


def _documented(code: types.CodeType) -> Any:
    return types.FunctionType(code, {}, closure=tuple(types.CellType() for _ in code.co_freevars)).__doc__


def _globals_of(value: types.FunctionType, writer: Writer) -> Any:
    values = value.__globals__
    if values is writer.around.namespace:
        return values
    pool = writer.globals_of.setdefault(id(values), GlobalsPool(values))
    for name in sorted(global_names(value.__code__) & values.keys() - {"__builtins__"} - pool.slots.keys()):
        pool.slots[name] = writer.slot(values[name])  # the node of the pool has this dict itself: it may grow
    return pool


def _make_globals(_: Any, __: Any, reader: Reader) -> dict[str, Any]:
    namespace = reader.around.namespace or {}
    return {"__builtins__": namespace.get("__builtins__", builtins)}


def _make_function(slots: Any, data: Any, reader: Reader) -> types.FunctionType:
    source, values = reader.value(slots[0]), reader.value(slots[1])
    qualname, line, nth = data["place"]
    code = code_at(source, (qualname, line, nth), data["flags"])
    if code is None or code.co_freevars != tuple(data["free"]):
        raise UnrestorableError("this version of Python compiles its source to something else")
    if not isinstance(values, dict):
        raise UnrestorableError("its globals are not there")
    cells = tuple(reader.value(cell) for cell in slots[6:])
    made = types.FunctionType(code, values, data["name"], None, cells or None)
    made.__qualname__, made.__module__ = data["qualname"], data["module"]
    if data["doc"] is not True:
        made.__doc__ = data["doc"]
    reader.around.sources.add(source)
    return made


def _fill_function(made: types.FunctionType, slots: Any, _: Any) -> None:
    made.__defaults__, made.__kwdefaults__, made.__annotations__ = slots[2:5]
    vars(made).update(slots[5])


# Classes


def _write_class(value: type, writer: Writer) -> Parts:
    source = writer.around.sources.of_class(value)
    statement = class_statements(source).get(value.__qualname__) if source is not None else None
    if source is None or statement is None:
        raise UnsavableError("its source text is not known: it was not made by a class statement of a recorded cell")
    values = _globals_of_class(value, source, writer)
    own = values is not writer.around.namespace
    code = _compiled(statement, source)
    names = global_names(code) if own else _names_at_birth(code)
    needs = {name: values[name] for name in sorted(names & values.keys() - {"__builtins__", value.__name__})}
    slots = [writer.slot(source), writer.slot(needs), writer.slot(_changed_attributes(value, source, writer))]
    return slots, {"qualname": value.__qualname__, "module": value.__module__, "own globals": own}


def _globals_of_class(value: type, source: str, writer: Writer) -> dict[str, Any]:
    for member in vars(value).values():
        if isinstance(member, types.FunctionType) and place_of(member.__code__, source) is not None:
            return member.__globals__
    return writer.around.namespace or {}


def _compiled(statement: ast.ClassDef, source: str) -> types.CodeType:
    module = ast.Module([statement], type_ignores=[])
    code: types.CodeType = compile(module, FILENAME, "exec", flags=future_flags(source), dont_inherit=True)
    return code


def _names_at_birth(code: types.CodeType) -> set[str]:
    """Return the global names that are looked up while the class statement runs: not those of its methods."""
    names: set[str] = set()
    todo = [code]
    for each in todo:  # grows while it is walked
        names.update(i.argval for i in dis.get_instructions(each) if i.opname in _GLOBAL_NAMES)
        bodies = (constant for constant in each.co_consts if isinstance(constant, types.CodeType))
        todo.extend(body for body in bodies if "__module__" in body.co_names)  # only the body of a class sets it
    return names


def _changed_attributes(value: type, source: str, writer: Writer) -> dict[str, Any]:
    """Return the attributes of a class that may be other than its statement makes them: data, and patched methods."""
    if isinstance(value, enum.EnumMeta):
        return {}
    changed: dict[str, Any] = {}
    for name, member in vars(value).items():
        if (name.startswith("__") and name.endswith("__")) or name == "_abc_impl":
            continue
        if isinstance(member, types.FunctionType):
            patched = place_of(member.__code__, source) is None and writer.around.sources.of_function(member)
            if patched:
                changed[name] = member
        elif not hasattr(member, "__get__"):
            changed[name] = member
    return changed


def _make_class(slots: Any, data: Any, reader: Reader) -> type:
    source, needs = reader.value(slots[0]), reader.value(slots[1])
    statement = class_statements(source).get(data["qualname"])
    if statement is None:
        raise UnrestorableError("its class statement is not in the source that was saved")
    namespace = reader.around.namespace
    values: dict[str, Any] = {} if data["own globals"] or namespace is None else namespace
    outcome: dict[str, Any] = {}
    with _lent(values, {"__builtins__": builtins, **needs, "__name__": data["module"]}):
        exec(_compiled(statement, source), values, outcome)  # noqa: S102  # signed by its owner: `code=True` below
    made = outcome[statement.name]
    if not isinstance(made, type):
        raise UnrestorableError("its class statement makes something that is not a class")
    if values is not namespace:
        values.update({"__builtins__": builtins, **needs, statement.name: made})
    made.__qualname__ = data["qualname"]
    reader.around.sources.add(source)
    reader.around.sources.add_class(made, source)
    return made


@contextmanager
def _lent(namespace: dict[str, Any], values: dict[str, Any]) -> Iterator[None]:
    """Put values into a dict while the block runs, and leave the dict as it was."""
    before = {name: namespace[name] for name in values if name in namespace}
    namespace.update(values)
    try:
        yield
    finally:
        for name in values:
            namespace.pop(name, None)
        namespace.update(before)


def _fill_class(made: type, slots: Any, _: Any) -> None:
    for name, value in slots[2].items():
        type.__setattr__(made, name, value)


# What is made of functions. Calling is left to whoever gets the value; so data alone never holds one.


def _write_partial(value: functools.partial[Any], writer: Writer) -> Parts:
    return [writer.slot(part) for part in (value.func, value.args, value.keywords, vars(value))], None


def _build_partial(slots: Any, _: Any, __: Reader) -> functools.partial[Any]:
    made = functools.partial(_present(slots[0]), *slots[1], **slots[2])
    vars(made).update(slots[3])
    return made


def _write_method(value: types.MethodType, writer: Writer) -> Parts:
    return [writer.slot(value.__func__), writer.slot(value.__self__)], None


def _build_method(slots: Any, _: Any, __: Reader) -> types.MethodType:
    return types.MethodType(_present(slots[0]), slots[1])


def _write_builtin_method(value: types.BuiltinMethodType, writer: Writer) -> Parts:
    if isinstance(value.__self__, types.ModuleType) or value.__self__ is None:
        raise UnsavableError("it is a function of a module that cannot be found by its name")
    return [writer.slot(value.__self__)], value.__name__


def _build_builtin_method(slots: Any, name: Any, _: Reader) -> Any:
    return getattr(_present(slots[0]), name)


def _write_operator(value: Any, writer: Writer) -> Parts:
    _, arguments, *rest = value.__reduce__()
    if rest or (type(value) is operator.methodcaller and not isinstance(arguments[0], str)):
        raise UnsavableError("its keyword arguments cannot be had; use a lambda")
    return [writer.slot(arguments)], type(value).__name__


def _build_operator(slots: Any, name: Any, _: Reader) -> Any:
    if name not in {"itemgetter", "attrgetter", "methodcaller"}:
        raise UnrestorableError(f"operator has no {name} that can be saved")
    return getattr(operator, name)(*slots[0])


def _present(value: Any) -> Any:
    if isinstance(value, Unrestored):
        raise UnrestorableError(f"the {value.unrestored_type} in it was not restored: {value.unrestored_reason}")
    return value


# Pickle: for values that nothing else can hold, when the caller chose it; loaded by choice and signature.


def write_pickle(value: Any, writer: Writer) -> Parts:
    """Return the parts of a value that is stored with pickle.

    Raises:
        UnsavableError: pickle cannot hold it.
    """
    try:
        content = pickle.dumps(value, protocol=5)
    except Exception as error:  # __reduce__ is anybody's code
        raise UnsavableError(f"pickle cannot hold it either: {error}") from error
    writer.note("it is stored with pickle: it comes back only from a signed file that is loaded with pickle allowed")
    return None, writer.data(content, "pickle")


def _build_pickle(_: Any, data: Any, reader: Reader) -> Any:
    if not reader.permissions.pickle:
        raise UnrestorableError("it is stored with pickle, and the reader does not allow that")
    return pickle.loads(reader.data(data))  # noqa: S301  # signed, and chosen by the caller


FUNCTION = MutableKind(
    tag="function",
    types=(types.FunctionType,),
    write=_write_function,
    make=_make_function,
    fill=_fill_function,
    head=lambda slots: [*slots[:2], *slots[6:]],
    reads=True,
    code=True,
)
CLASS = MutableKind(
    tag="class",
    write=_write_class,
    make=_make_class,
    fill=_fill_class,
    head=lambda slots: slots[:2],
    reads=True,
    code=True,
)
PICKLE = Kind(tag="pickle", write=write_pickle, build=_build_pickle, code=True)
KINDS = (
    FUNCTION,
    CLASS,
    PICKLE,
    MutableKind(
        tag="globals",
        types=(GlobalsPool,),
        write=lambda pool, _: (pool.slots, None),
        make=_make_globals,
        fill=lambda made, slots, _: made.update(slots or {}),
    ),
    Kind(tag="partial", types=(functools.partial,), write=_write_partial, build=_build_partial, reads=True, code=True),
    Kind(tag="method", types=(types.MethodType,), write=_write_method, build=_build_method, code=True),
    Kind(
        tag="builtin method",
        types=(types.BuiltinMethodType,),
        write=_write_builtin_method,
        build=_build_builtin_method,
        code=True,
    ),
    Kind(
        tag="operator",
        types=(operator.itemgetter, operator.attrgetter, operator.methodcaller),
        write=_write_operator,
        build=_build_operator,
        code=True,
    ),
)
