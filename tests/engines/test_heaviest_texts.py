"""What texts must have to be among the heaviest: held against all combinations of words, one by one."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("psycopg", reason="needs the extra postgres")

from rlm_memory.engines.postgres.heaviest import (
    MOST_WORDS,
    Requirement,
    least_weight,
    requirements,
)

falling = st.lists(st.integers(1, 50), min_size=1, max_size=8).map(lambda weights: sorted(weights, reverse=True))


def combinations_of(count: int) -> list[frozenset[int]]:
    return [frozenset(some) for size in range(count + 1) for some in combinations(range(count), size)]


@given(falling, st.data())
def test_a_text_has_what_is_required_if_and_only_if_it_weighs_enough(weights: list[int], data: st.DataObject) -> None:
    least = data.draw(st.integers(1, sum(weights) + 5))
    required = list(requirements(weights, least))
    for words in combinations_of(len(weights)):
        has_it = any(words.issuperset(one.every) and words.intersection(one.some) for one in required)
        assert has_it == (sum(weights[word] for word in words) >= least)


def test_words_that_weigh_enough_alone_are_one_requirement() -> None:
    assert list(requirements([9, 8, 3, 2, 1], 8)) == [Requirement((), (0, 1))]
    assert list(requirements([9, 8, 3, 2], 10)) == [Requirement((0,), (1, 2, 3)), Requirement((1,), (2, 3))]


@given(falling, st.data())
def test_as_many_texts_are_expected_as_are_wanted_and_no_lighter_ones(weights: list[int], data: st.DataObject) -> None:
    shares = np.array([data.draw(st.floats(0.001, 0.6)) for _ in weights])
    wanted = data.draw(st.floats(0.0001, 0.9))
    likely = {
        words: float(np.prod([share if word in words else 1 - share for word, share in enumerate(shares)]))
        for words in combinations_of(len(weights))
    }
    sums = {words: sum(weights[word] for word in words) for words in likely}

    def expected(least: int) -> float:
        return sum(likely[words] for words, weight in sums.items() if weight >= least)

    least = least_weight(weights, shares, wanted)
    if least > min(weights):
        assert expected(least) >= wanted * (1 - 1e-9)
    heavier = [weight for weight in sums.values() if weight > least]
    assert not heavier or expected(min(heavier)) < wanted * (1 + 1e-9)


def test_all_combinations_of_most_words_are_weighed() -> None:
    shares = np.full(MOST_WORDS, 0.05)
    assert least_weight([7] * MOST_WORDS, shares, 0.005) == 21
