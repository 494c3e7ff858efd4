"""Counting the bits that differ: by SimSIMD and by numpy, the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory.engines.sqlite import hamming


@given(st.integers(0, 9000), st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_both_ways_count_the_bits_that_differ(rows: int, others: int, words: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    stored = chance.integers(0, 2**63, (rows, words), dtype=np.uint64)
    asked = chance.integers(0, 2**63, (others, words), dtype=np.uint64)
    expected = [np.bitwise_count(stored ^ row).sum(axis=1).tolist() for row in asked]
    assert hamming.by_numpy(stored, asked).tolist() == expected
    assert hamming.differences(stored, asked).tolist() == expected


def test_the_faster_way_is_taken_where_it_is_installed() -> None:
    pytest.importorskip("simsimd", reason="needs the extra fast")
    assert hamming.cdist is not None
