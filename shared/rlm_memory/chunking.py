"""Where to cut serialised values, so that what two of them have in common becomes the same pieces. Pure.

A value that grows or is edited keeps most of its pieces: a cut depends on the eight bytes before it and not on where it
lies (content-defined chunking, Muthitacharoen et al. 2001). Nothing is known of the encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

LEAST: Final = 768
MOST: Final = 6144
"""Where a text repeats itself, no cut may come for long, and the last piece is stored anew whenever the value grows."""
_HEAD: Final = 16
"""Serialisers put lengths first: when a list grows, these bytes change and the end, so they are a piece by themselves.
"""
_WINDOW: Final = 8
_BITS: Final = 11
"""A cut every 2,048 bytes on average, beyond the least. Measured with tests/bench/saver.py: half of that stores a
fourth less of a chat that grows, and a put takes a tenth longer, for there are twice as many pieces to look for."""
_LIST_BITS: Final = 6
_FACTOR: Final = np.uint64(
    0x9E3779B97F4A7C15
)  # 2**64 divided by the golden ratio: spreads every bit over the upper ones
_MARK: Final = 48
"""A known piece is found by so many of its first bytes, and then compared."""
_BLOCK: Final = 12_288
"""Windows looked at in one go. What is computed on the way stays in the cache: 0.16 ms for 150 kB instead of 0.3."""


def cut(content: bytes, known: Mapping[bytes, bytes] | None = None) -> list[bytes]:
    """Return the pieces of a value, in order; joined they are the value.

    Args:
        content: The value.
        known: What `marks` made of the pieces of a value that may be much the same. It changes nothing but the time:
            where the value goes on as a known piece does, that piece (the same object) is taken, and no cut looked for.

    >>> b"".join(cut(bytes(range(256)) * 99)) == bytes(range(256)) * 99
    True
    """
    if len(content) <= LEAST + _HEAD:
        return [content]
    pieces = [content[:_HEAD]]
    start = _HEAD
    known = known or {}
    while start < len(content):
        piece = known.get(content[start : start + _MARK])
        if piece is not None and content.startswith(piece, start):
            pieces.append(piece)
            start += len(piece)
            continue
        for end in _ends(content, start):
            pieces.append(content[start:end])
            start = end
            if content[start : start + _MARK] in known:
                break
    return pieces


def marks(pieces: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the pieces of a value by what they begin with, for `cut`; without those that do not end at a cut."""
    return {piece[:_MARK]: piece for piece in pieces[1:-1]}


def _ends(content: bytes, start: int) -> Iterator[int]:
    """Yield where the pieces end that begin at `start`."""
    looked, size = start + LEAST - _WINDOW, MOST  # the first piece alone may be needed: a known one may follow it
    while looked + _WINDOW <= len(content):
        block = content[looked : looked + size + _WINDOW - 1]
        windows = np.ndarray((len(block) - _WINDOW + 1,), dtype="<u8", buffer=block, strides=(1,))
        for end in (_cuts(windows, _BITS) + (looked + _WINDOW)).tolist():
            while end - start > MOST:
                start += MOST
                yield start
            if end - start >= LEAST:
                start = end
                yield start
        looked, size = looked + size, _BLOCK
    while len(content) - start > MOST:
        start += MOST
        yield start
    if start < len(content):
        yield len(content)


def cut_list(numbers: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """Return the pieces of a list of numbers, in order, cut by the same idea; none is empty.

    >>> [len(piece) for piece in cut_list(np.array([7, 8, 9], dtype=np.uint32))]
    [3]
    """
    ends = _cuts(numbers.astype(np.uint64), _LIST_BITS) + 1
    return [piece for piece in np.split(numbers, ends) if len(piece)]


def _cuts(words: NDArray[np.uint64], bits: int) -> NDArray[np.intp]:
    """Return the positions of the words, one in 2**bits, after which to cut."""
    return (words * _FACTOR < np.uint64(1 << (64 - bits))).nonzero()[0]
