"""Cutting values: joined again they are the value, and what two have in common is cut alike."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory.chunking import LEAST, MOST, cut, cut_list, marks


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@given(st.binary(max_size=300) | st.integers(0, 60_000).map(noise))
def test_pieces_joined_are_the_value(content: bytes) -> None:
    assert b"".join(cut(content)) == content


@given(st.integers(0, 60_000).map(noise) | st.integers(0, 60_000).map(bytes))
def test_no_piece_is_longer_than_the_most_and_none_inside_is_shorter_than_the_least(content: bytes) -> None:
    head, *pieces = cut(content)
    assert all(len(piece) <= MOST for piece in [head, *pieces])
    assert all(len(piece) >= LEAST for piece in pieces[:-1])


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=2000))
def test_pieces_of_a_list_joined_are_the_list(numbers: list[int]) -> None:
    pieces = cut_list(np.array(numbers, dtype=np.uint32))
    assert np.concatenate(pieces).tolist() == numbers
    assert all(len(piece) for piece in pieces)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content + b"and more",
        lambda content: b"more and " + content,
        lambda content: content[:20_000] + b"inserted" + content[20_000:],
        lambda content: content[:20_000] + content[20_300:],
        lambda content: b"\xdd\x01" + content[2:],
    ],
    ids=["append", "prepend", "insert", "delete", "another length in the head"],
)
def test_changed_value_keeps_nearly_all_of_its_pieces(change) -> None:
    content = noise(50_000, seed=3)
    before, after = set(cut(content)), cut(change(content))
    new = [piece for piece in after if piece not in before]
    assert sum(map(len, new)) < 6_000
    assert len(new) < len(after) / 4


@given(
    st.integers(0, 40_000).map(noise) | st.binary(max_size=900).map(lambda part: part * 40),
    st.integers(0, 40_000),
    st.integers(0, 9_000),
    st.binary(max_size=3_000),
)
def test_known_pieces_change_nothing_but_are_taken_again(before: bytes, at: int, less: int, more: bytes) -> None:
    known = marks(cut(before))
    after = before[:at] + more + before[at + less :]
    pieces = cut(after, known)
    assert pieces == cut(after)
    if after == before:
        assert all(any(piece is each for each in known.values()) for piece in pieces[1:-1] if known)
