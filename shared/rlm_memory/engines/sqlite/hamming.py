"""In how many bits rows of packed bits differ from others: by SimSIMD where it is installed, else by numpy.

SimSIMD compares 10,000 rows of 1,536 bits with one in 0.06 ms and 100,000 in 0.7 ms, numpy in 0.4 and 4.5 (one thread,
AVX-512).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

cdist: Callable[..., Any] | None
try:
    from simsimd import cdist
except ImportError:  # the extra `fast` is not installed
    cdist = None

_BLOCK_ROWS: Final = 4096
"""Rows that numpy compares at once: 4,096 of 192 bytes stay in a second-level cache."""


def differences(rows: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Return in how many bits each of the packed `others` differs from each of the packed `rows`.

    A row has fewer than 65,536 bits. Of shapes (m, words) and (n, words), the result has the shape (m, n).
    """
    if cdist is None or not len(rows):  # it refuses to compare nothing
        return by_numpy(rows, others)
    counts = cdist(others.view(np.uint8), rows.view(np.uint8), "hamming", dtype="bin8")
    return np.asarray(counts, dtype=np.uint16).reshape(len(others), len(rows))


def by_numpy(rows: NDArray[np.uint64], others: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Return what `differences` does, without SimSIMD."""
    counts = np.empty((len(others), len(rows)), dtype=np.uint16)
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        for other, count in zip(others, counts[:, start : start + _BLOCK_ROWS], strict=True):
            np.bitwise_count(block ^ other).sum(axis=1, dtype=np.uint16, out=count)
    return counts
