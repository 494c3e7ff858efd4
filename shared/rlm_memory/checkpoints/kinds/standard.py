"""Values of the standard library that cannot change: times, numbers, ids, paths, patterns, exceptions, generics."""

from __future__ import annotations

import builtins
import datetime as dt
import pathlib
import random
import re
import types
import typing
import uuid
import warnings
import zoneinfo
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rlm_memory.checkpoints.kinds.base import Kind, MutableKind, Parts, UnrestorableError, UnsavableError

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer

_PATHS: dict[str, type[pathlib.PurePath]] = {
    each.__name__: each
    for each in (
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        pathlib.PosixPath,
        pathlib.WindowsPath,
    )
}
_TYPING_ALIASES = tuple(
    dict.fromkeys(
        type(alias)
        for alias in (
            typing.List[int],  # noqa: UP006  # the alias itself is meant
            typing.Union[int, str],  # noqa: UP007
            typing.Callable[[int], int],
            typing.Literal[1],
        )
    )
)
_PATTERN_LIMIT = 100_000
"""Characters. A longer pattern from a stranger could keep the compiler of patterns busy for minutes."""


def _write_datetime(value: dt.datetime, writer: Writer) -> Parts:
    return [writer.slot(value.tzinfo)], [value.replace(tzinfo=None, fold=0).isoformat(), value.fold]


def _build_datetime(slots: Any, data: Any, _: Reader) -> dt.datetime:
    return dt.datetime.fromisoformat(data[0]).replace(tzinfo=slots[0], fold=data[1])


def _write_time(value: dt.time, writer: Writer) -> Parts:
    return [writer.slot(value.tzinfo)], [value.replace(tzinfo=None, fold=0).isoformat(), value.fold]


def _build_time(slots: Any, data: Any, _: Reader) -> dt.time:
    return dt.time.fromisoformat(data[0]).replace(tzinfo=slots[0], fold=data[1])


def _write_timedelta(value: dt.timedelta, _: Writer) -> Parts:
    return None, [value.days, value.seconds, value.microseconds]


def _write_timezone(value: dt.timezone, writer: Writer) -> Parts:
    name = value.tzname(None)
    offset = value.utcoffset(None)
    return [writer.slot(offset)], None if name == dt.timezone(offset).tzname(None) else name


def _build_timezone(slots: Any, name: Any, _: Reader) -> dt.timezone:
    if name is None:
        return dt.UTC if not slots[0] else dt.timezone(slots[0])
    return dt.timezone(slots[0], name)


def _write_zone(value: zoneinfo.ZoneInfo, _: Writer) -> Parts:
    if value.key is None:
        raise UnsavableError("a time zone that was read from a file has no name to find it by")
    return None, value.key


def _write_decimal(value: Decimal, _: Writer) -> Parts:
    return None, str(value)


def _write_fraction(value: Fraction, _: Writer) -> Parts:
    return None, [hex(value.numerator), hex(value.denominator)]


def _write_uuid(value: uuid.UUID, _: Writer) -> Parts:
    return None, [value.hex, value.is_safe.name]


def _build_uuid(_: Any, data: Any, __: Reader) -> uuid.UUID:
    return uuid.UUID(hex=data[0], is_safe=uuid.SafeUUID[data[1]])


def _write_path(value: pathlib.PurePath, writer: Writer) -> Parts:
    return [writer.slot(str(value))], type(value).__name__


def _build_path(slots: Any, data: Any, _: Reader) -> pathlib.PurePath:
    return _PATHS[data](slots[0])


def _write_pattern(value: re.Pattern[Any], writer: Writer) -> Parts:
    return [writer.slot(value.pattern)], value.flags


def _build_pattern(slots: Any, flags: Any, _: Reader) -> re.Pattern[Any]:
    if len(slots[0]) > _PATTERN_LIMIT:
        raise UnrestorableError(f"a pattern of {len(slots[0])} characters is longer than {_PATTERN_LIMIT}")
    with warnings.catch_warnings(action="ignore"):  # it was compiled before; its author has seen them
        return re.compile(slots[0], flags & ~re.UNICODE if isinstance(slots[0], bytes) else flags)


def _write_random(value: random.Random, writer: Writer) -> Parts:
    return [writer.slot(value.getstate())], None


def _build_random(slots: Any, _: Any, __: Reader) -> random.Random:
    generator = random.Random()  # noqa: S311  # the state that is set next is the caller's
    generator.setstate(slots[0])
    return generator


def _write_generic(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value.__origin__), writer.slot(value.__args__)], None


def _build_generic(slots: Any, _: Any, __: Reader) -> Any:
    if not isinstance(slots[0], type):
        raise UnrestorableError("what it is a generic of is not there")
    return types.GenericAlias(slots[0], slots[1])


def _write_union(value: Any, writer: Writer) -> Parts:
    return [writer.slot(value.__args__)], None


def _build_union(slots: Any, _: Any, __: Reader) -> Any:
    union = slots[0][0]
    for each in slots[0][1:]:
        union |= each
    return union


def _write_typing(value: Any, writer: Writer) -> Parts:
    _, (origin, arguments) = value.__reduce__()
    return [writer.slot(getattr(origin, "_name", None)), writer.slot(arguments)], None


def _build_typing(slots: Any, _: Any, __: Reader) -> Any:
    if slots[0] not in typing.__all__:
        raise UnrestorableError(f"typing has no {slots[0]}")
    return getattr(typing, slots[0])[slots[1]]


def _write_special_form(value: Any, _: Writer) -> Parts:
    return None, value._name


def _build_special_form(_: Any, name: Any, __: Reader) -> Any:
    if name not in typing.__all__:
        raise UnrestorableError(f"typing has no {name}")
    return getattr(typing, name)


# Exceptions of the language itself. Their classes run nothing of ours; the traceback is not kept: its frames are gone.


def is_plain_exception(kind: type) -> bool:
    """Tell whether the class is an exception that the language defines."""
    return issubclass(kind, BaseException) and getattr(builtins, kind.__name__, None) is kind


def _write_exception(value: BaseException, writer: Writer) -> Parts:
    reduced: Any = value.__reduce__()
    _, arguments, *state = reduced
    if value.__traceback__ is not None:
        writer.note("its traceback is not saved: the frames it leads to end with the process")
    links = [value.__cause__, value.__context__, state[0] if state else None]
    slots = [writer.slot(arguments), *map(writer.slot, links)]
    return slots, [type(value).__name__, value.__suppress_context__]


def _make_exception(slots: Any, data: Any, reader: Reader) -> BaseException:
    kind = getattr(builtins, data[0], None)
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        raise UnrestorableError(f"there is no exception {data[0]}")
    made = kind(*reader.value(slots[0]))
    made.__suppress_context__ = data[1]
    return made


def _fill_exception(made: BaseException, slots: Any, data: Any) -> None:
    made.__cause__, made.__context__ = slots[1], slots[2]
    made.__suppress_context__ = data[1]  # setting the cause has set it
    if slots[3] is not None:
        made.__setstate__(slots[3])


EXCEPTION = MutableKind(
    tag="exception",
    write=_write_exception,
    make=_make_exception,
    fill=_fill_exception,
    head=lambda slots: slots[:1],
    reads=True,
)

KINDS = (
    Kind(tag="datetime", types=(dt.datetime,), write=_write_datetime, build=_build_datetime),
    Kind(
        tag="date",
        types=(dt.date,),
        write=lambda value, _: (None, value.isoformat()),
        build=lambda _, data, __: dt.date.fromisoformat(data),
    ),
    Kind(tag="time", types=(dt.time,), write=_write_time, build=_build_time),
    Kind(
        tag="timedelta",
        types=(dt.timedelta,),
        write=_write_timedelta,
        build=lambda _, data, __: dt.timedelta(days=data[0], seconds=data[1], microseconds=data[2]),
    ),
    Kind(tag="timezone", types=(dt.timezone,), write=_write_timezone, build=_build_timezone),
    Kind(
        tag="ZoneInfo",
        types=(zoneinfo.ZoneInfo,),
        write=_write_zone,
        build=lambda _, key, __: zoneinfo.ZoneInfo(key),
    ),
    Kind(tag="Decimal", types=(Decimal,), write=_write_decimal, build=lambda _, data, __: Decimal(data)),
    Kind(
        tag="Fraction",
        types=(Fraction,),
        write=_write_fraction,
        build=lambda _, data, __: Fraction(int(data[0], 16), int(data[1], 16)),
    ),
    Kind(tag="UUID", types=(uuid.UUID,), write=_write_uuid, build=_build_uuid),
    Kind(tag="path", types=tuple(_PATHS.values()), write=_write_path, build=_build_path),
    Kind(tag="pattern", types=(re.Pattern,), write=_write_pattern, build=_build_pattern),
    Kind(tag="Random", types=(random.Random,), write=_write_random, build=_build_random),
    Kind(tag="generic", types=(types.GenericAlias,), write=_write_generic, build=_build_generic),
    Kind(tag="union", types=(types.UnionType,), write=_write_union, build=_build_union),
    Kind(
        tag="typing",
        types=_TYPING_ALIASES,
        write=_write_typing,
        build=_build_typing,
    ),
    Kind(
        tag="typing form",
        types=(type(typing.ClassVar),),
        write=_write_special_form,
        build=_build_special_form,
    ),
    EXCEPTION,
)
