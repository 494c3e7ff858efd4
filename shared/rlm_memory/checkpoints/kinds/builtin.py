"""The built-in types, and those of `collections` and `types` that are containers."""

from __future__ import annotations

import array
import datetime
import struct
import types
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from rlm_memory.checkpoints.heap import ATOMS, BLOB_BYTES, Slot, is_text
from rlm_memory.checkpoints.kinds.base import Kind, MutableKind, Parts, UnrestorableError, UnsavableError

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer

_SINGLETONS: dict[str, Any] = {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}


# Atoms that JSON cannot hold exactly.


def _write_str(value: str, writer: Writer) -> Parts:
    """A text with a lone surrogate is stored as bytes, and so is a long one."""
    if len(value) < BLOB_BYTES and is_text(value):
        return None, value
    return None, [writer.data(value.encode("utf-8", "surrogatepass"), "txt")]


def _build_str(_: Any, data: Any, reader: Reader) -> str:
    return data if isinstance(data, str) else reader.data(data[0]).decode("utf-8", "surrogatepass")


def _write_int(value: int, _: Writer) -> Parts:
    return None, hex(value)  # decimal digits are slow to read, and Python refuses more than 4300 of them


def _write_float(value: float, _: Writer) -> Parts:
    return None, struct.pack(">d", value).hex()  # NaN and infinity: the bits, since a NaN can carry a sign


def _write_complex(value: complex, _: Writer) -> Parts:
    return None, struct.pack(">dd", value.real, value.imag).hex()


def _write_bytes(value: bytes | bytearray, writer: Writer) -> Parts:
    return None, writer.data(bytes(value), "bin")


def _write_memoryview(value: memoryview, writer: Writer) -> Parts:
    whole = value.format == "B" and value.contiguous and value.nbytes == memoryview(value.obj).nbytes
    if not whole or not isinstance(value.obj, (bytes, bytearray)):
        raise UnsavableError("only a memoryview of all of a bytes or bytearray can be saved; save its bytes instead")
    return [writer.slot(value.obj)], {"readonly": value.readonly}


def _build_memoryview(slots: Any, data: Any, _: Reader) -> memoryview:
    if not isinstance(slots[0], (bytes, bytearray)):
        raise UnrestorableError("what it looks at is not there")
    view = memoryview(slots[0])
    return view.toreadonly() if data["readonly"] else view


def _write_array(value: array.array[Any], writer: Writer) -> Parts:
    return None, {"typecode": value.typecode, "items": writer.data(value.tobytes(), "bin")}


def _build_array(_: Any, data: Any, reader: Reader) -> array.array[Any]:
    return array.array(data["typecode"], reader.data(data["items"]))


# Containers. Items are read in one go, so that another thread that changes the container cannot break the loop.


def _write_items(value: Any, writer: Writer) -> Parts:
    slot = writer.slot
    return [slot(item) for item in tuple(value)], None


def _write_deque(value: deque[Any], writer: Writer) -> Parts:
    return [writer.slot(item) for item in tuple(value)], value.maxlen


def _write_set(value: set[Any] | frozenset[Any], writer: Writer) -> Parts:
    """Members are sorted where that is possible: the order of a set is another one in each process."""
    return [writer.slot(item) for item in sorted(value, key=_order)], None


_ORDERED: Final = frozenset({bytes, complex, Decimal, UUID, datetime.date, datetime.datetime, datetime.timedelta})
"""Types whose values are told apart by what Python shows of them."""


def _order(member: Any, depth: int = 4) -> tuple[str, Any]:
    """Return what orders the members of a set by value; those of a type that is not known here keep their order."""
    kind = type(member)
    if kind is int:
        return kind.__name__, hex(member)  # decimal digits are limited
    if kind in ATOMS or kind in _ORDERED:
        return kind.__name__, repr(member)
    if kind is Fraction:
        return kind.__name__, (hex(member.numerator), hex(member.denominator))
    if kind in {tuple, frozenset} and depth:
        parts = [_order(part, depth - 1) for part in member]
        return kind.__name__, repr(sorted(parts) if kind is frozenset else parts)
    return "~", ""


def _write_dict(value: dict[Any, Any], writer: Writer) -> Parts:
    slot = writer.slot
    return {key: slot(item) for key, item in tuple(value.items())}, None


def _write_pairs(value: Any, writer: Writer) -> Parts:
    return _pairs(value, writer), None


def _pairs(value: Any, writer: Writer) -> list[Slot]:
    return [writer.slot(part) for item in tuple(value.items()) for part in item]


def _write_defaultdict(value: defaultdict[Any, Any], writer: Writer) -> Parts:
    return [writer.slot(value.default_factory), *_pairs(value, writer)], None


def _fill_defaultdict(made: defaultdict[Any, Any], slots: list[Any], _: Any) -> None:
    made.default_factory = slots[0]
    _fill_pairs(made, slots[1:], None)


def _fill_pairs(made: Any, slots: list[Any], _: Any) -> None:
    for key, item in zip(slots[::2], slots[1::2], strict=True):
        made[key] = item


def _fill_dict(made: dict[str, Any], slots: dict[str, Any] | None, _: Any) -> None:
    made.update(slots or {})


def _fill_list(made: list[Any] | deque[Any], slots: list[Any] | None, _: Any) -> None:
    made.extend(slots or ())


def _fill_set(made: set[Any], slots: list[Any] | None, _: Any) -> None:
    made.update(slots or ())


def _write_namespace(value: types.SimpleNamespace, writer: Writer) -> Parts:
    return [writer.slot(vars(value))], None


def _fill_namespace(made: types.SimpleNamespace, slots: list[Any], _: Any) -> None:
    vars(made).update(slots[0])


def _write_chain_map(value: ChainMap[Any, Any], writer: Writer) -> Parts:
    return [writer.slot(value.maps)], None


def _fill_chain_map(made: ChainMap[Any, Any], slots: list[Any], _: Any) -> None:
    made.maps = slots[0]


def _write_mapping_proxy(value: types.MappingProxyType[Any, Any], writer: Writer) -> Parts:
    """The dict behind a proxy cannot be had from Python, except by this operator, which hands it to the other side."""

    class Behind:
        def __ror__(self, mapping: Any) -> Any:
            return mapping

    return [writer.slot(value | Behind())], None


def _write_range(value: range, writer: Writer) -> Parts:
    return [writer.slot(value.start), writer.slot(value.stop), writer.slot(value.step)], None


def _write_slice(value: slice, writer: Writer) -> Parts:
    return [writer.slot(value.start), writer.slot(value.stop), writer.slot(value.step)], None


def _write_cell(value: types.CellType, writer: Writer) -> Parts:
    try:
        return [writer.slot(value.cell_contents)], None
    except ValueError:  # an empty cell: the variable has no value yet
        return None, None


def _fill_cell(made: types.CellType, slots: list[Any] | None, _: Any) -> None:
    if slots:
        made.cell_contents = slots[0]


KINDS = (
    Kind(tag="str", types=(str,), write=_write_str, build=_build_str),
    Kind(tag="int", types=(int,), write=_write_int, build=lambda _, data, __: int(data, 16)),
    Kind(
        tag="float", types=(float,), write=_write_float, build=lambda _, d, __: struct.unpack(">d", bytes.fromhex(d))[0]
    ),
    Kind(
        tag="complex",
        types=(complex,),
        write=_write_complex,
        build=lambda _, data, __: complex(*struct.unpack(">dd", bytes.fromhex(data))),
    ),
    Kind(tag="bytes", types=(bytes,), write=_write_bytes, build=lambda _, data, reader: reader.data(data)),
    Kind(tag="bytearray", types=(bytearray,), write=_write_bytes, build=lambda _, d, reader: bytearray(reader.data(d))),
    Kind(tag="memoryview", types=(memoryview,), write=_write_memoryview, build=_build_memoryview),
    Kind(tag="array", types=(array.array,), write=_write_array, build=_build_array),
    Kind(
        tag="singleton",
        types=(type(Ellipsis), type(NotImplemented)),
        write=lambda value, _: (None, repr(value)),
        build=lambda _, data, __: _SINGLETONS[data],
    ),
    Kind(tag="range", types=(range,), write=_write_range, build=lambda slots, _, __: range(*slots)),
    Kind(tag="slice", types=(slice,), write=_write_slice, build=lambda slots, _, __: slice(*slots)),
    Kind(tag="tuple", types=(tuple,), write=_write_items, build=lambda slots, _, __: tuple(slots or ())),
    Kind(tag="frozenset", types=(frozenset,), write=_write_set, build=lambda slots, _, __: frozenset(slots or ())),
    MutableKind(tag="list", types=(list,), write=_write_items, make=lambda *_: [], fill=_fill_list),
    MutableKind(tag="dict", write=_write_dict, make=lambda *_: {}, fill=_fill_dict),
    MutableKind(tag="map", write=_write_pairs, make=lambda *_: {}, fill=_fill_pairs, hashes=True),
    MutableKind(tag="set", types=(set,), write=_write_set, make=lambda *_: set(), fill=_fill_set, hashes=True),
    MutableKind(
        tag="deque",
        types=(deque,),
        write=_write_deque,
        make=lambda _, maxlen, __: deque(maxlen=maxlen),
        fill=_fill_list,
    ),
    MutableKind(
        tag="defaultdict",
        types=(defaultdict,),
        write=_write_defaultdict,
        make=lambda *_: defaultdict(),
        fill=_fill_defaultdict,
        hashes=True,
    ),
    MutableKind(
        tag="OrderedDict",
        types=(OrderedDict,),
        write=_write_pairs,
        make=lambda *_: OrderedDict(),
        fill=_fill_pairs,
        hashes=True,
    ),
    MutableKind(
        tag="Counter", types=(Counter,), write=_write_pairs, make=lambda *_: Counter(), fill=_fill_pairs, hashes=True
    ),
    MutableKind(
        tag="ChainMap",
        types=(ChainMap,),
        write=_write_chain_map,
        make=lambda *_: ChainMap(),
        fill=_fill_chain_map,
    ),
    Kind(
        tag="mappingproxy",
        types=(types.MappingProxyType,),
        write=_write_mapping_proxy,
        build=lambda slots, _, __: types.MappingProxyType(slots[0]),
    ),
    MutableKind(
        tag="SimpleNamespace",
        types=(types.SimpleNamespace,),
        write=_write_namespace,
        make=lambda *_: types.SimpleNamespace(),
        fill=_fill_namespace,
        reads=True,
    ),
    MutableKind(
        tag="cell", types=(types.CellType,), write=_write_cell, make=lambda *_: types.CellType(), fill=_fill_cell
    ),
)
_DICT, _MAP = (next(kind for kind in KINDS if kind.tag == tag) for tag in ("dict", "map"))


def kind_of_dict(value: dict[Any, Any]) -> Kind | MutableKind:
    """Return "dict" for a dict whose keys JSON can hold as they are, else "map"."""
    keys = tuple(value)
    if set(map(type, keys)) - {str}:
        return _MAP
    if not "".join(keys).isascii() and not all(map(is_text, keys)):
        return _MAP
    return _DICT
