"""What goes to an embedder and what comes back, checked before it is used."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlm_memory.errors import EmbeddingRequestError, InvalidInputError
from rlm_memory.ports import Vector

_Array: TypeAlias = NDArray[Any]


def expect_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list if each can be embedded.

    Raises:
        InvalidInputError: One is blank, no string, or holds half a surrogate pair; the message names its position.
    """
    if isinstance(texts, str):
        raise InvalidInputError("embed() takes a list of texts; pass [text], or call embed_query(text).")
    listed = list(texts)
    for position, text in enumerate(listed):
        if not isinstance(text, str):
            raise InvalidInputError(f"Item {position} is no text but {type(text).__name__}.")
        if not text.strip():
            raise InvalidInputError(f"Item {position} is blank: there is nothing to embed. Leave it out.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                f"Item {position} has a lone surrogate at character {error.start}: it is no valid Unicode text."
            ) from error
    return listed


def checked(vectors: object, count: int, dimensions: int | None, positions: Sequence[int] | None = None) -> Vector:
    """Return an embedder's answer as a matrix: shape (count, dimensions), float32, C-contiguous.

    Lists and arrays of any number type are taken, and tensors that numpy can read.

    Args:
        vectors: What the embedder returned for `count` texts.
        count: The number of texts.
        dimensions: The length each vector must have; None if they must only have the same.
        positions: What the error calls each row, if not its number.

    Raises:
        EmbeddingRequestError: There are too few or too many, one has another length, or cannot be compared by angle:
            it is zero, not finite, or beyond the range of float32. The message names the item.
    """
    if not isinstance(vectors, Iterable) or isinstance(vectors, (str, bytes, Mapping)):
        raise EmbeddingRequestError(f"Expected {count} vectors, got {type(vectors).__name__}.")
    given = vectors if isinstance(vectors, np.ndarray) and vectors.ndim == 2 else list(vectors)
    packed = given if isinstance(given, np.ndarray) else _packed(given)
    rows = packed if isinstance(packed, np.ndarray) else [_row(vector) for vector in packed]
    if len(rows) != count:
        raise EmbeddingRequestError(f"Expected {count} vectors, one a text, got {len(rows)}.")
    if not count:
        return np.empty((0, dimensions or 0), np.float32)
    items = range(count) if positions is None else positions
    length = dimensions or rows[0].size
    for item, row in zip(items, rows[:1] if isinstance(rows, np.ndarray) else rows, strict=False):  # all are alike
        if fault := _fault_of_shape(row, length):
            raise EmbeddingRequestError(f"The vector of item {item} cannot be used: {fault}.", [item])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        matrix: Vector = np.ascontiguousarray(rows, np.float32)
        squares = np.einsum("ij,ij->i", matrix, matrix)
    # One number a vector tells NaN, Inf, zero, and what overflows or vanishes when an engine squares it in float32.
    unusable = np.flatnonzero(~((squares >= np.finfo(np.float32).tiny) & (squares < np.inf)))
    if unusable.size:
        item, fault = items[unusable[0]], _fault_of_numbers(_row(given[unusable[0]]))
        raise EmbeddingRequestError(f"The vector of item {item} cannot be used: {fault}.", [item])
    return matrix


def as_matrix(answer: object) -> Vector:
    """Return an embedder's answer, rows of numbers, as float32; what overflows is infinite.

    Raises:
        TypeError: These are no numbers.
        ValueError: The rows differ in length.
    """
    with np.errstate(over="ignore"):
        return np.asarray(_packed(answer) if isinstance(answer, list) else answer, dtype=np.float32)


def _packed(rows: list[Any]) -> _Array | list[Any]:
    """Return lists of floats as a matrix of float32: numpy takes twice the time, to find out what is in them."""
    if rows and all(type(row) is list and row and type(row[0]) is float for row in rows):
        row_of_floats = struct.Struct(f"<{len(rows[0])}f")
        with contextlib.suppress(struct.error, OverflowError):  # numpy tells what is wrong
            return np.frombuffer(b"".join([row_of_floats.pack(*row) for row in rows]), "<f4").reshape(len(rows), -1)
    return rows


def _row(vector: object) -> _Array:
    try:
        return np.asarray(vector)
    except ValueError:  # lists of different lengths in it
        return np.empty(0, object)


def _fault_of_shape(row: _Array, length: int) -> str:
    if row.ndim != 1 or row.dtype.kind not in "fiu":
        return f"expected one list of numbers, got an array of {row.dtype} with {row.ndim} dimensions"
    if not row.size:
        return "it is empty"
    return "" if row.size == length else f"expected {length} numbers, got {row.size}"


def _fault_of_numbers(row: _Array) -> str:
    infinite = np.flatnonzero(~np.isfinite(row))
    if infinite.size:
        return f"its number at {infinite[0]} is {row[infinite[0]]}"
    if not row.any():
        return "it is zero, and has no direction; the model may know none of the text's words"
    return f"its numbers are beyond the range of float32, up to {np.abs(row).max():.3g}"
