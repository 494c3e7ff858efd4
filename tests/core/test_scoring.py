"""Scores: what each formula gives on numbers worked out by hand, then what holds for all numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rlm_memory.errors import InvalidQueryError
from rlm_memory.scoring import (
    bm25,
    checked_alpha,
    fuse,
    inverse_document_frequency,
    maximal_marginal_relevance,
    normalise,
    order,
    unit,
)

nan = math.nan
any_finite = st.floats(allow_nan=False, allow_infinity=False)
cosines = st.floats(-1, 1) | st.just(nan)
keyword_scores = st.floats(0, 100) | st.just(0.0) | st.just(nan)
candidates = st.lists(st.tuples(cosines, keyword_scores), max_size=30)


def columns(rows: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


# --- inverse document frequency and BM25 ---


def test_a_rare_term_weighs_more_than_a_common_one():
    rare, common = inverse_document_frequency(1000, [1, 900])
    assert rare == pytest.approx(math.log(1 + 999.5 / 1.5))
    assert common == pytest.approx(math.log(1 + 100.5 / 900.5))


def test_one_count_gives_one_float():
    weight = inverse_document_frequency(10, 3)
    assert isinstance(weight, float)
    assert weight == pytest.approx(math.log(1 + 7.5 / 3.5))


@given(st.integers(0, 10**9), st.integers(0, 10**9))
@example(0, 0)
@example(3, 5)
def test_a_term_never_counts_against_a_text(documents: int, containing: int):
    assert inverse_document_frequency(documents, containing) > 0


def test_bm25_by_hand():
    # Two texts of 4 and 8 tokens; the collection's mean is 5.
    scores = bm25([[2, 0], [1, 3]], [4, 8], 5.0, [1.5, 0.5])
    first = 1.5 * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 4 / 5))
    long = 1.2 * (0.25 + 0.75 * 8 / 5)
    second = 1.5 * 1 * 2.2 / (1 + long) + 0.5 * 3 * 2.2 / (3 + long)
    assert scores == pytest.approx([first, second])


def test_bm25_agrees_with_fts5_on_the_order_of_texts():
    """B006"""
    apsw = pytest.importorskip("apsw")
    texts = [
        "red red red fox",
        "red fox",
        "a red hen and a fox in a long long text about it",
        "no colour",
        "red",
        "hen",
    ]
    connection = apsw.Connection(":memory:")
    connection.execute("create virtual table t using fts5(text)")
    connection.executemany("insert into t(text) values (?)", [(text,) for text in texts + ["x"] * 20])
    expected = dict(connection.execute("select rowid - 1, -bm25(t) from t('red OR fox')"))
    split = [text.split() for text in texts]
    frequencies = np.array([[words.count("red"), words.count("fox")] for words in split])
    lengths = np.array([len(words) for words in split])
    average = (lengths.sum() + 20) / (len(texts) + 20)
    ours = bm25(frequencies, lengths, average, inverse_document_frequency(26, (frequencies > 0).sum(axis=0)))
    by_ours = sorted(expected, key=lambda row: -ours[row])
    assert by_ours == sorted(expected, key=lambda row: -expected[row])
    assert ours[3] == ours[5] == 0


@pytest.mark.parametrize("b", [0.0, 0.75, 1.0])
def test_a_text_without_the_terms_scores_zero_and_nothing_divides_by_zero(b: float):
    assert bm25([[0, 0], [0, 0]], [0, 7], 0.0, [1.0, 2.0], b=b).tolist() == [0.0, 0.0]


def test_bm25_of_no_texts_and_of_no_terms():
    assert bm25(np.zeros((0, 2)), np.zeros(0), 5.0, [1.0, 1.0]).shape == (0,)
    assert bm25(np.zeros((3, 0)), np.ones(3), 5.0, []).tolist() == [0.0, 0.0, 0.0]


@given(st.integers(1, 50), st.integers(1, 200), st.floats(1, 500), st.floats(0.01, 20))
def test_more_of_a_term_scores_higher_and_never_above_the_bound(
    frequency: int, length: int, average: float, weight: float
):
    less, more = bm25([[frequency], [frequency + 1]], [length, length], average, [weight])
    assert 0 < less < more < 2.2 * weight * (1 + 1e-12)


# --- normalisation ---


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([0.2, 0.6, 0.4], [0.0, 1.0, 0.5]),
        ([-0.5, 0.5], [0.0, 1.0]),
        ([0.3, 0.3, 0.3], [1.0, 1.0, 1.0]),
        ([0.0, 0.0], [1.0, 1.0]),
        ([0.7], [1.0]),
        ([nan, 0.2, 0.6], [0.0, 0.0, 1.0]),
        ([nan, 0.4, nan], [0.0, 1.0, 0.0]),
        ([nan, nan], [0.0, 0.0]),
        ([], []),
        ([5e-324, 0.0], [1.0, 0.0]),
        ([-1.7e308, 0.0, 1.7e308], [0.0, 0.5, 1.0]),
        ([0.1, 0.1 + 1e-9], [1.0, 1.0]),
        ([0.1, 0.1001], [0.0, 1.0]),
    ],
)
def test_semantic_normalisation(raw: list[float], expected: list[float]):
    """B032"""
    assert normalise(raw) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([4.2, 2.1, 0.5], [1.0, 1.6 / 3.7, 0.0]),
        ([4.0, 0.0, 2.0], [1.0, 0.0, 0.5]),
        ([0.0, 0.0], [0.0, 0.0]),
        ([3.0, 3.0], [1.0, 1.0]),
        ([1e-9, 1e-9], [1.0, 1.0]),
        ([5.0], [1.0]),
        ([0.0], [0.0]),
        ([nan, 0.0], [0.0, 0.0]),
        ([nan, 2.0, 0.0], [0.0, 1.0, 0.0]),
        ([5e-324, 0.0], [1.0, 0.0]),
    ],
)
def test_keyword_normalisation(raw: list[float], expected: list[float]):
    """B006 B032"""
    assert normalise(raw, zero_is_no_match=True) == pytest.approx(expected)


@given(arrays.arrays(np.float64, st.integers(0, 30), elements=any_finite | st.just(nan)), st.booleans())
def test_normalised_scores_lie_in_0_1_and_keep_the_order(raw: np.ndarray, keyword: bool):
    """B006"""
    raw = np.abs(raw) if keyword else raw
    scores = normalise(raw, zero_is_no_match=keyword)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (scores[np.isnan(raw)] == 0).all()
    seen = ~np.isnan(raw)
    ascending = np.argsort(raw[seen], kind="stable")
    assert (np.diff(scores[seen][ascending]) >= 0).all()
    if seen.any() and not (keyword and (raw[seen] == 0).all()):
        assert scores.max() == 1
    if keyword:
        assert (scores[raw == 0] == 0).all()


@given(arrays.arrays(np.float64, st.integers(1, 20), elements=st.floats(-1, 1)), st.integers(1, 5))
def test_candidates_without_a_score_change_nothing_for_the_others(raw: np.ndarray, unseen: int):
    assert normalise(np.append(raw, [nan] * unseen))[: len(raw)].tolist() == normalise(raw).tolist()


# --- fusion ---


@pytest.mark.parametrize("alpha", [-0.1, 1.1, nan, math.inf, "0.5", True, False, np.bool_(True), None, [0.5], 1j])
def test_alpha_out_of_range_or_not_a_number_is_refused(alpha: Any):
    """B057"""
    with pytest.raises(InvalidQueryError, match="alpha"):
        checked_alpha(alpha)


@pytest.mark.parametrize("alpha", [0, 1, 0.5, np.float32(0.5), np.int64(1)])
def test_alpha_in_range_comes_back_as_a_float(alpha: Any):
    """B057"""
    assert checked_alpha(alpha) == alpha
    assert type(checked_alpha(alpha)) is float


def test_fusion_by_hand():
    # The second has no vector, the third no matching word.
    assert fuse([0.2, nan, 0.8], [2.0, 8.0, 0.0], 0.25) == pytest.approx([0.75 * 0.25, 0.75, 0.25])


def test_a_leg_that_finds_nothing_leaves_the_weighted_part_of_the_other():
    """B019"""
    assert fuse([0.2, 0.8], [nan, nan], 0.5).tolist() == [0.0, 0.5]
    assert fuse([0.2, 0.8], [0.0, 0.0], 0.5).tolist() == [0.0, 0.5]
    assert fuse([nan, nan], [1.0, 3.0], 0.5).tolist() == [0.0, 0.5]
    assert fuse([], [], 0.5).tolist() == []


@given(candidates)
def test_alpha_0_is_keywords_alone_and_alpha_1_vectors_alone(rows: list[tuple[float, float]]):
    """B057"""
    semantic, keyword = columns(rows)
    assert fuse(semantic, keyword, 0).tolist() == normalise(keyword, zero_is_no_match=True).tolist()
    assert fuse(semantic, keyword, 1).tolist() == normalise(semantic).tolist()


@given(candidates, st.floats(0, 1))
def test_fused_scores_lie_in_0_1(rows: list[tuple[float, float]], alpha: float):
    scores = fuse(*columns(rows), alpha)
    assert ((scores >= 0) & (scores <= 1)).all()


# --- order ---


def told(created: list[int], ids: list[str]) -> Callable[[Sequence[int]], list[tuple[int, str]]]:
    return lambda tied: [(created[i], ids[i]) for i in tied]


def test_equal_scores_are_ordered_by_cosine_then_newest_then_id():
    rows = [
        ("score", 0.9, nan, 1),
        ("cosine", 0.5, 0.7, 1),
        ("newer", 0.5, 0.6, 9),
        ("a", 0.5, 0.6, 5),
        ("b", 0.5, 0.6, 5),
        ("negative", 0.5, -0.9, 10),
        ("without a vector", 0.5, nan, 11),
        ("last", 0.1, 0.9, 99),
    ]
    for seed in range(10):
        shuffled = random.Random(seed).sample(rows, len(rows))
        ids, scores, semantic, created = (list(column) for column in zip(*shuffled, strict=True))
        for n in range(1, len(rows) + 2):
            best = order(scores, semantic, told(created, ids), n)
            assert [ids[i] for i in best] == [row[0] for row in rows][:n]


def test_origins_are_asked_of_what_ties_among_the_best_alone():
    def none_is_asked(tied: Sequence[int]) -> list[tuple[int, str]]:
        raise AssertionError(tied)

    assert order([0.5, 0.9, 0.7, 0.5], [nan] * 4, none_is_asked, 2).tolist() == [1, 2]


def test_order_of_nothing_is_nothing():
    assert order([], [], lambda _: [], 10).tolist() == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 1.0]),
            st.sampled_from([-0.5, 0.0, 0.5, nan]),
            st.sampled_from([-1, 0, 2**60, 2**60 + 1]),
            st.text(max_size=3),
        ),
        unique_by=lambda row: row[3],
        max_size=20,
    ),
    st.randoms(use_true_random=False),
)
@example([(0.0, 0.0, 0, "a\0"), (0.0, 0.0, 0, "a")], random.Random(1))
def test_order_does_not_depend_on_the_order_of_the_input(rows: list[tuple[float, float, int, str]], chance: Any):
    shuffled = chance.sample(rows, len(rows))
    results = []
    for given_rows in (rows, shuffled):
        scores, semantic, created, ids = (
            [list(column) for column in zip(*given_rows, strict=True)] if given_rows else [[]] * 4
        )
        results.append([ids[i] for i in order(scores, semantic, told(created, ids), len(rows) + 1)])
    expected = sorted(rows, key=lambda r: (-r[0], math.inf if math.isnan(r[1]) else -r[1], -r[2], r[3]))
    assert results == [[row[3] for row in expected]] * 2


# --- diversity ---

NORTH, EAST, SOUTH = [0.0, 1.0], [1.0, 0.0], [0.0, -1.0]


def test_the_second_choice_is_unlike_the_first():
    vectors = np.array([NORTH, NORTH, EAST])
    assert maximal_marginal_relevance([0.9, 0.8, 0.5], vectors, 2, 0.5) == [0, 2]


def test_the_opposite_direction_is_more_unlike_than_a_right_angle():
    vectors = np.array([NORTH, EAST, SOUTH])
    assert maximal_marginal_relevance([1.0, 0.5, 0.5], vectors, 3, 0.5) == [0, 2, 1]


def test_lambda_1_is_the_order_of_relevance():
    vectors = np.array([NORTH, NORTH, EAST])
    assert maximal_marginal_relevance([0.5, 0.9, 0.7], vectors, 3, 1.0) == [1, 2, 0]


def test_lambda_0_still_begins_with_the_most_relevant():
    vectors = np.array([NORTH, EAST, EAST])
    assert maximal_marginal_relevance([0.1, 0.9, 0.8], vectors, 2, 0.0) == [1, 0]


def test_a_row_without_a_vector_is_unlike_everything():
    vectors = np.array([NORTH, [nan, nan], NORTH, SOUTH])
    assert maximal_marginal_relevance([1.0, 0.5, 0.6, 0.0], vectors, 3, 0.4) == [0, 3, 1]


@pytest.mark.parametrize("lambda_mult", [-0.1, 1.1, nan, "0.5", True])
def test_lambda_outside_0_1_is_refused(lambda_mult: Any):
    with pytest.raises(InvalidQueryError, match="lambda_mult"):
        maximal_marginal_relevance([1.0], np.array([NORTH]), 1, lambda_mult)


@pytest.mark.parametrize("k", [-1, 0, 3, 10])
def test_k_beyond_the_candidates_gives_them_all_and_k_0_none(k: int):
    chosen = maximal_marginal_relevance([0.1, 0.2, 0.3], np.array([NORTH, EAST, SOUTH]), k, 0.5)
    assert sorted(chosen) == list(range(min(max(k, 0), 3)))


def slow_marginal_relevance(relevance: np.ndarray, vectors: np.ndarray, k: int, weight: float) -> list[int]:
    """The paper's formula, written out."""
    chosen = [int(np.argmax(relevance))]
    while len(chosen) < min(k, len(relevance)):
        rest = [i for i in range(len(relevance)) if i not in chosen]
        gains = [
            weight * relevance[i] - (1 - weight) * max(float(vectors[i] @ vectors[j]) for j in chosen) for i in rest
        ]
        chosen.append(rest[int(np.argmax(gains))])
    return chosen


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_diversity_agrees_with_the_formula_written_out(count: int, k: int, weight: float, seed: int):
    chance = np.random.default_rng(seed)
    vectors = chance.normal(size=(count, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    relevance = chance.uniform(size=count)
    chosen = maximal_marginal_relevance(relevance, vectors, k, weight)
    assert chosen == slow_marginal_relevance(relevance, vectors, k, weight)
    assert len(set(chosen)) == len(chosen)


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 5), st.integers(1, 40)),
        elements=st.floats(-1000, 1000, width=32).filter(lambda x: x == 0 or abs(x) > 1e-3),
    ).filter(lambda vectors: bool((np.linalg.norm(vectors, axis=1) > 0).all()))
)
def test_a_vector_of_length_one_stays_as_it_is(vectors: Any) -> None:
    once = unit(vectors)
    assert np.allclose(np.linalg.norm(once.astype(np.float64), axis=1), 1, atol=1e-6)
    assert unit(once).tobytes() == once.tobytes()
    assert unit(once[0]).tobytes() == once[0].tobytes()
