"""Where to cut serialised values, so that what two of them have in common becomes the same pieces. Pure.

A value that grows or is edited keeps most of its pieces: a cut depends on the eight bytes before it and not on where it
lies (content-defined chunking, Muthitacharoen et al. 2001). Nothing is known of the encoding.
"""

from __future__ import annotations

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
_BLOCK: Final = 12_288
"""Windows looked at in one go. What is computed on the way stays in the cache: 0.16 ms for 150 kB instead of 0.3."""


def cut(content: bytes) -> list[bytes]:
    """Return the pieces of a value, in order; joined they are the value.

    >>> b"".join(cut(bytes(range(256)) * 99)) == bytes(range(256)) * 99
    True
    """
    if len(content) <= LEAST + _HEAD:
        return [content]
    windows = np.ndarray((len(content) - _WINDOW + 1,), dtype="<u8", buffer=content, strides=(1,))
    ends = _cuts(windows, _BITS) + _WINDOW
    pieces = [content[:_HEAD]]
    start = _HEAD
    for end in [*ends.tolist(), len(content)]:
        while end - start > MOST:
            pieces.append(content[start : start + MOST])
            start += MOST
        if end - start >= LEAST:
            pieces.append(content[start:end])
            start = end
    if start < len(content):
        pieces.append(content[start:])
    return pieces


def cut_list(numbers: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """Return the pieces of a list of numbers, in order, cut by the same idea; none is empty.

    >>> [len(piece) for piece in cut_list(np.array([7, 8, 9], dtype=np.uint32))]
    [3]
    """
    ends = _cuts(numbers.astype(np.uint64), _LIST_BITS) + 1
    return [piece for piece in np.split(numbers, ends) if len(piece)]


def _cuts(words: NDArray[np.uint64], bits: int) -> NDArray[np.intp]:
    """Return the positions of the words, one in 2**bits, after which to cut."""
    below = np.uint64(1 << (64 - bits))
    chosen = np.empty(len(words), dtype=bool)
    for start in range(0, len(words), _BLOCK):
        block = words[start : start + _BLOCK]
        np.less(block * _FACTOR, below, out=chosen[start : start + _BLOCK])
    return np.flatnonzero(chosen)
