"""The answer of any embedder is checked before it is used: count, length, numbers."""

from __future__ import annotations

from decimal import Decimal
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rlm_memory.embedding import checked
from rlm_memory.embedding.remote import split_batches
from rlm_memory.errors import EmbeddingRequestError

GOOD = [[1.0, 2.0], [3.0, 4.0]]

ACCEPTED = {
    "lists": GOOD,
    "tuples": tuple(map(tuple, GOOD)),
    "integers": [[1, 2], [3, 4]],
    "float64 (B148)": np.array(GOOD),
    "float32": np.array(GOOD, np.float32),
    "float16": np.array(GOOD, np.float16),
    "int8": np.array(GOOD, np.int8),
    "a list of arrays": [np.array(row) for row in GOOD],
    "rows of several types": [[1, 2], np.array([3, 4], np.uint64)],
    "column-major": np.asfortranarray(GOOD),
    "every second row": np.array([*zip(GOOD, GOOD, strict=True)]).reshape(-1, 2)[::2],
    "backwards": np.array(GOOD[::-1])[::-1],
    "read-only": np.frombuffer(np.array(GOOD).tobytes()).reshape(2, 2),
    "big-endian": np.array(GOOD, ">f8"),
    "a generator": (row for row in GOOD),
}


@pytest.mark.parametrize("vectors", ACCEPTED.values(), ids=ACCEPTED)
def test_whatever_holds_numbers_becomes_a_float32_matrix(vectors: Any) -> None:
    """B148"""
    matrix = checked(vectors, 2, 2)
    assert matrix.dtype == np.float32
    assert matrix.dtype.isnative
    assert matrix.flags.c_contiguous
    assert matrix.tolist() == GOOD


def test_a_length_nobody_fixed_is_that_of_the_vectors() -> None:
    assert checked(GOOD, 2, None).shape == (2, 2)


@pytest.mark.parametrize("nothing", [[], (), np.empty((0, 4)), np.empty(0)], ids=["list", "tuple", "matrix", "array"])
def test_no_vectors_for_no_texts(nothing: Any) -> None:
    assert checked(nothing, 0, 4).shape == (0, 4)
    assert checked(nothing, 0, None).shape == (0, 0)


REFUSED = {
    "None": (None, "got NoneType"),
    "a number": (1.0, "got float"),
    "text": ("vectors", "got str"),
    "bytes": (b"vectors", "got bytes"),
    "a dict": ({"data": GOOD}, "got dict"),
    "none at all (B083)": ([], "one a text, got 0"),
    "one missing (B083)": (GOOD[:1], "one a text, got 1"),
    "one too many": ([*GOOD, [5.0, 6.0]], "one a text, got 3"),
    "one flat vector": ([1.0, 2.0], "item 10 .* expected one list of numbers"),
    "one flat array": (np.array([1.0, 2.0]), "item 10 .* expected one list of numbers"),
    "a level too deep (B148)": ([[[1.0, 2.0]], [[3.0, 4.0]]], "item 10 .* expected one list of numbers"),
    "a second vector too short": ([[1.0, 2.0], [3.0]], "item 20 .* expected 2 numbers, got 1"),
    "a second vector too long": ([[1.0, 2.0], [3.0, 4.0, 5.0]], "item 20 .* expected 2 numbers, got 3"),
    "both too long (B157)": (np.ones((2, 3)), "item 10 .* expected 2 numbers, got 3"),
    "an empty one (B148)": ([[1.0, 2.0], []], "item 20 .* it is empty"),
    "a missing one": ([[1.0, 2.0], None], "item 20 .* expected one list of numbers"),
    "a missing number": ([[1.0, 2.0], [3.0, None]], "item 20 .* expected one list of numbers"),
    "an uneven nest": ([[1.0, 2.0], [[3.0], [4.0, 5.0]]], "item 20 .* expected one list of numbers"),
    "numbers in words": ([[1.0, 2.0], ["3", "4"]], "item 20 .* expected one list of numbers"),
    "complex numbers": ([[1.0, 2.0], [3j, 4.0]], "item 20 .* expected one list of numbers"),
    "truth values": ([[1.0, 2.0], [True, False]], "item 20 .* expected one list of numbers"),
    "decimals": ([[1.0, 2.0], [Decimal(3), Decimal(4)]], "item 20 .* expected one list of numbers"),
    "NaN": ([[1.0, 2.0], [3.0, float("nan")]], "item 20 .* its number at 1 is nan"),
    "infinity": ([[1.0, 2.0], [-float("inf"), 4.0]], "item 20 .* its number at 0 is -inf"),
    "more than float32 holds": ([[1.0, 2.0], [1e39, 4.0]], r"item 20 .* beyond the range of float32, up to 1e\+39"),
    "a square beyond float32": ([[1.0, 2.0], [1e30, 4.0]], r"item 20 .* beyond the range of float32, up to 1e\+30"),
    "less than float32 tells from zero": ([[1.0, 2.0], [1e-50, 0.0]], "item 20 .* beyond the range of float32"),
    "a square float32 blurs": ([[1.0, 2.0], [1e-20, 0.0]], "item 20 .* beyond the range of float32, up to 1e-20"),
    "a square float32 loses": ([[1.0, 2.0], [1e-30, 0.0]], "item 20 .* beyond the range of float32"),
    "zero": ([[1.0, 2.0], [0.0, -0.0]], "item 20 .* it is zero"),
}


@pytest.mark.parametrize(("vectors", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compared_is_refused_by_item(vectors: Any, message: str) -> None:
    """B083, B148, B157"""
    with pytest.raises(EmbeddingRequestError, match=message):
        checked(vectors, 2, 2, positions=[10, 20])


def test_rows_are_named_by_their_number_where_nothing_else_is_said() -> None:
    with pytest.raises(EmbeddingRequestError, match="The vector of item 1 cannot be used"):
        checked([[1.0], [0.0]], 2, None)


@given(arrays.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=st.floats(width=64)))
def test_what_passes_can_be_compared_by_angle(vectors: np.ndarray) -> None:
    """Whatever the numbers: a matrix comes back whose cosines are numbers, or the error names a row that has none."""
    try:
        matrix = checked(vectors, len(vectors), None)
    except EmbeddingRequestError as error:
        item = int(str(error).split("item ")[1].split()[0])
        with np.errstate(all="ignore"):
            square = np.square(vectors[item].astype(np.float32)).sum(dtype=np.float32)
        assert not np.finfo(np.float32).smallest_normal <= square < np.inf
    else:
        with np.errstate(under="ignore"):
            assert np.array_equal(matrix, vectors.astype(np.float32))
            cosines = np.square(matrix).sum(axis=1) / np.square(np.linalg.norm(matrix, axis=1))
        assert np.allclose(cosines, 1, atol=1e-3)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 10), st.integers(1, 100))
def test_batches_are_whole_and_as_long_as_the_limits_allow(sizes: list[int], items: int, tokens: int) -> None:
    batches = split_batches(sizes, items=items, tokens=tokens)
    assert [position for batch in batches for position in batch] == list(range(len(sizes)))
    for batch, following in zip_longest(batches, batches[1:]):
        held = sum(sizes[position] for position in batch)
        assert 1 <= len(batch) <= items
        assert held <= tokens or len(batch) == 1
        assert following is None or len(batch) == items or held + sizes[following[0]] > tokens
