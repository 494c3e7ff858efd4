"""NumPy: arrays with the memory they share, scalars, dtypes, masked arrays, random generators.

An array is stored in NumPy's own `.npy` format, never with pickle. Arrays that look at the same memory are stored as
one array and views of it, so that a change through one is seen through the other again.
"""

from __future__ import annotations

import ast
import base64
import io
import math
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlm_memory.checkpoints.kinds.base import Kind, Later, MutableKind, Parts, UnrestorableError, UnsavableError

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer

_HEADER_LIMIT = 64 * 1024
_MOST_EMPTY = 1_000_000
"""The items without a size that an array may have: no bytes of the file answer for them, but each takes time."""
_LARGEST_OVERLAP = 256 << 20
"""The bytes that a view may show of fewer bytes, by showing some of them again: who copies it needs so much memory."""
_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def _dtype_text(dtype: np.dtype[Any]) -> str:
    """Return a description that leads back to exactly this dtype.

    Raises:
        UnsavableError: there is none.
    """
    with warnings.catch_warnings(action="ignore"):  # that it cannot be described is found out on the next lines
        description = np.lib.format.dtype_to_descr(dtype)
        try:
            exact = dtype.metadata is None and np.lib.format.descr_to_dtype(description) == dtype
        except (TypeError, ValueError):
            exact = False
    if not exact:
        raise UnsavableError(f"the dtype {dtype} cannot be described in NumPy's file format")
    return repr(description)


def _dtype(text: str) -> np.dtype[Any]:
    if len(text) > _HEADER_LIMIT:
        raise UnrestorableError("the description of its dtype is too long")
    return np.lib.format.descr_to_dtype(ast.literal_eval(text))


def _to_npy(array: np.ndarray[Any, Any]) -> bytes:
    _dtype_text(array.dtype)
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _from_npy(data: bytes) -> np.ndarray[Any, Any]:
    """Read an array after its header was compared with the number of bytes that are there.

    NumPy's own reader allocates what the header says first: eight terabytes, if that is what it says.
    """
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream, max_header_size=_HEADER_LIMIT)
    if dtype.hasobject:
        raise UnrestorableError("arrays of objects are not stored in this form")
    start, count = stream.tell(), math.prod(shape)
    if count * dtype.itemsize != len(data) - start:
        raise UnrestorableError(f"its header promises {count * dtype.itemsize} bytes; there are {len(data) - start}")
    if not dtype.itemsize and count > _MOST_EMPTY:
        raise UnrestorableError(f"its header promises {count} items that have no size")
    flat = np.frombuffer(data, dtype, count=count, offset=start) if dtype.itemsize and count else np.empty(count, dtype)
    return np.array(flat.reshape(shape, order="F" if fortran else "C"), order="K")


def _root(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array that owns the memory, or the last one that is known."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def _write_array(value: np.ndarray[Any, Any], writer: Writer) -> Parts | Later:
    if value.dtype.hasobject:
        return _write_objects(value, writer)
    root = _root(value)
    writer.families.setdefault(id(root), []).append(value)
    return Later(partial(_write_shared, value, root, writer))


def _write_objects(value: np.ndarray[Any, Any], writer: Writer) -> Parts:
    if value.dtype != np.dtype(object):
        raise UnsavableError("a structured array with Python objects in it has no exact form; make it a DataFrame")
    if value.base is not None:
        writer.note("it is a view of an array of objects and comes back as an array of its own")
    order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
    items = value.ravel(order="C").tolist()
    return [writer.slot(item) for item in items], {
        "objects": list(value.shape),
        "order": order,
        "writeable": value.flags.writeable,
    }


def _write_shared(value: np.ndarray[Any, Any], root: np.ndarray[Any, Any], writer: Writer) -> Parts:
    shared = value is not root and len(writer.families[id(root)]) > 1
    if (
        shared
        and value.nbytes <= max(root.nbytes, _LARGEST_OVERLAP)
        and (root.flags.c_contiguous or root.flags.f_contiguous)
        and not root.dtype.hasobject
    ):
        offset = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return [writer.slot(root)], {
            "dtype": _dtype_text(value.dtype),
            "shape": list(value.shape),
            "strides": list(value.strides),
            "offset": offset,
            "writeable": value.flags.writeable,
        }
    if shared or isinstance(root.base, (bytearray, memoryview)):
        writer.note("it shares its memory with another object and comes back as an array of its own")
    return None, {"npy": writer.data(_to_npy(value), "npy"), "writeable": value.flags.writeable}


def _make_array(slots: Any, data: Any, reader: Reader) -> np.ndarray[Any, Any]:
    if "npy" in data:
        array = _from_npy(reader.data(data["npy"]))
    elif "objects" in data:
        if math.prod(data["objects"]) != len(slots or ()):
            raise UnrestorableError("its shape does not fit the number of its items")
        array = np.empty(data["objects"], dtype=object, order=data["order"])
    else:
        array = _view(reader.value(slots[0]), data)
    if "objects" not in data:
        array.flags.writeable = data["writeable"]
    return array


def _view(root: Any, data: Any) -> np.ndarray[Any, Any]:
    if type(root) is not np.ndarray:
        raise UnrestorableError("the array that it looks at is not there")
    memory = root.ravel(order="K")  # the bytes in the order in which they lie, so that strides mean what they meant
    dtype, shape, strides = _dtype(data["dtype"]), tuple(data["shape"]), tuple(data["strides"])
    if dtype.hasobject:
        raise UnrestorableError("bytes cannot be looked at as Python objects")
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size]
    low = data["offset"] + sum(step for step in reach if step < 0)
    high = data["offset"] + sum(step for step in reach if step > 0) + dtype.itemsize
    if 0 not in shape and not 0 <= low <= high <= memory.nbytes:
        raise UnrestorableError(f"it looks at bytes {low} to {high} of an array of {memory.nbytes}")
    if 0 in shape:
        return np.empty(shape, dtype)
    size = math.prod(shape)
    if size * dtype.itemsize > max(memory.nbytes, _LARGEST_OVERLAP) or (not dtype.itemsize and size > _MOST_EMPTY):
        raise UnrestorableError(f"it shows {size} items of {memory.nbytes} bytes")
    return np.ndarray(shape, dtype, buffer=memory, offset=data["offset"], strides=strides)


def _fill_array(made: np.ndarray[Any, Any], slots: Any, data: Any) -> None:
    if "objects" in data:
        if slots:  # np.ndindex makes a tuple of a whole axis: of a shape without items, that could be any number
            for place, item in zip(np.ndindex(made.shape), slots, strict=True):
                made[place] = item
        made.flags.writeable = data["writeable"]


def _head_of_array(slots: Any) -> list[Any]:
    return slots[:1] if len(slots) == 1 else []


def _write_scalar(value: np.generic, _: Writer) -> Parts:
    if value.dtype.hasobject:
        raise UnsavableError("a structured scalar with Python objects in it has no exact form")
    return None, [_dtype_text(value.dtype), base64.b64encode(value.tobytes()).decode()]


def _build_scalar(_: Any, data: Any, __: Reader) -> Any:
    dtype = _dtype(data[0])
    if dtype.hasobject:
        raise UnrestorableError("bytes cannot be read as Python objects")
    content = base64.b64decode(data[1], validate=True)
    return np.frombuffer(content, dtype, count=1)[0] if dtype.itemsize else dtype.type()


def _write_dtype(value: np.dtype[Any], _: Writer) -> Parts:
    return None, _dtype_text(value)


def _write_masked(value: np.ma.MaskedArray[Any, Any], writer: Writer) -> Parts:
    if value.dtype.names is not None:
        raise UnsavableError("a masked structured array has no exact form; save its data and its mask")
    slots = [writer.slot(value.data), writer.slot(np.ma.getmaskarray(value)), writer.slot(value.fill_value)]
    return slots, {"hard": value.hardmask, "nomask": value.mask is np.ma.nomask}


def _build_masked(slots: Any, data: Any, _: Reader) -> np.ma.MaskedArray[Any, Any]:
    mask = np.ma.nomask if data["nomask"] else slots[1]
    if not isinstance(slots[0], np.ndarray):
        raise UnrestorableError("the array that it masks is not there")
    if isinstance(slots[2], np.ndarray) and slots[2].size != 1:
        raise UnrestorableError("what stands for its masked items is more than one value")
    return np.ma.MaskedArray(slots[0], mask=mask, fill_value=slots[2], hard_mask=data["hard"])


def _write_generator(value: np.random.Generator, writer: Writer) -> Parts:
    name = type(value.bit_generator).__name__
    if name not in _GENERATORS:
        raise UnsavableError(f"the state of a {name} has no known form")
    return [writer.slot(value.bit_generator.state)], name


def _build_generator(slots: Any, name: Any, _: Reader) -> np.random.Generator:
    if name not in _GENERATORS:
        raise UnrestorableError(f"there is no bit generator {name}")
    bits = getattr(np.random, name)()
    bits.state = slots[0]
    return np.random.Generator(bits)


def _write_random_state(value: np.random.RandomState, writer: Writer) -> Parts:
    return [writer.slot(value.get_state(legacy=False))], None


def _build_random_state(slots: Any, _: Any, __: Reader) -> np.random.RandomState:
    generator = np.random.RandomState()
    generator.set_state(slots[0])
    return generator


_SCALARS = tuple(
    each for each in {np.dtype(code).type for code in np.typecodes["All"]} if not issubclass(each, np.object_)
)

KINDS = (
    MutableKind(
        tag="numpy.ndarray",
        types=(np.ndarray,),
        write=_write_array,
        make=_make_array,
        fill=_fill_array,
        head=_head_of_array,
    ),
    Kind(tag="numpy.scalar", types=_SCALARS, write=_write_scalar, build=_build_scalar),
    Kind(
        tag="numpy.dtype",
        types=tuple({type(np.dtype(code)) for code in np.typecodes["All"]}),
        write=_write_dtype,
        build=lambda _, text, __: _dtype(text),
    ),
    Kind(tag="numpy.masked", types=(np.ma.MaskedArray,), write=_write_masked, build=_build_masked),
    Kind(
        tag="numpy.Generator", types=(np.random.Generator,), write=_write_generator, build=_build_generator, reads=True
    ),
    Kind(
        tag="numpy.RandomState",
        types=(np.random.RandomState,),
        write=_write_random_state,
        build=_build_random_state,
        reads=True,
    ),
)
