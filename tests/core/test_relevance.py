"""Relevance: a score that means the same in every query, and the threshold on it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory import Memory
from rlm_memory.errors import InvalidQueryError
from rlm_memory.scoring import relevance
from support import WordEmbedder

TEXTS = [f"Some note about garden number {i}" for i in range(300)]
CODE = "Restart the pump when it shows ERR_4711"


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(":memory:", embedder=WordEmbedder()) as memory:
        memory.add([*TEXTS, CODE])
        yield memory


def test_the_better_leg_decides():
    assert relevance([0.3, 0.8, -1.0, np.nan], [0.5, 0.0, 0.0, 0.25]).tolist() == [0.5, 0.8, 0.0, 0.25]


def test_a_leg_that_was_not_asked_counts_nothing():
    assert relevance([np.nan, 0.4], [np.nan, np.nan]).tolist() == [0.0, 0.4]


def test_copies_of_the_question_are_exactly_1_whatever_float32_makes_of_them():
    assert relevance([1.0 - 1e-7, 1.0 + 1e-7], [0.0, 0.0]).tolist() == [1.0, 1.0]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 1)), min_size=1))
def test_it_lies_in_0_to_1_and_never_falls_when_the_cosine_rises(rows: list[tuple[float, float, float]]):
    low = relevance([min(a, b) for a, b, _ in rows], [coverage for *_, coverage in rows])
    high = relevance([max(a, b) for a, b, _ in rows], [coverage for *_, coverage in rows])
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()


def test_it_is_the_share_of_the_questions_words_for_a_search_by_words(memory: Memory):
    hits = memory.search("pump shows unheardof smoke", alpha=0, k=301)
    assert [hit.relevance for hit in hits if hit.text == CODE] == [0.5]  # stem and stop words aside, two words of four
    assert {hit.relevance for hit in hits if hit.text != CODE} == {0.0}


def test_it_is_the_cosine_for_a_search_by_vectors(memory: Memory):
    for hit in memory.search("garden number 7", alpha=1, k=10):
        assert hit.semantic is not None
        assert hit.relevance == pytest.approx(max(0.0, hit.semantic), abs=2e-6)


def test_it_does_not_change_as_the_store_grows(memory: Memory):
    (before,) = (hit.relevance for hit in memory.search("pump in the garden", k=301) if hit.text == CODE)
    memory.add([f"pump {i}" for i in range(100)])
    (after,) = (hit.relevance for hit in memory.search("pump in the garden", k=401) if hit.text == CODE)
    assert before == after


def test_the_exact_word_passes_a_threshold_though_vectors_weigh_more(memory: Memory):
    """B050"""
    hits = memory.search("ERR_4711", alpha=0.7, k=4, min_relevance=0.35)
    assert [hit.text for hit in hits] == [CODE]
    assert hits[0].relevance == 1.0


def test_the_threshold_lets_k_through_where_so_many_pass(memory: Memory):
    assert len(memory.search("garden", alpha=0, k=7, min_relevance=1.0)) == 7
    assert len(memory.search("garden", alpha=0, k=7, min_relevance=1.0, mmr=0.5, fetch_k=30)) == 7
    assert memory.search("garden fence", alpha=0, k=7, min_relevance=0.51) == []


@pytest.mark.parametrize("least", [-0.1, 1.1, float("nan"), True, "0.5"])
def test_a_threshold_outside_of_the_scale_is_refused(memory: Memory, least: object):
    with pytest.raises(InvalidQueryError, match="min_relevance"):
        memory.search("garden", min_relevance=least)  # type: ignore[arg-type]  # the mistake under test
