"""Scores of candidates: BM25, the fusion of both legs, the order of the hits, and diversity.

Pure: arrays in, arrays out. In an array of raw scores NaN means "this leg did not see the candidate".
"""

from __future__ import annotations

from bisect import bisect_right
from numbers import Real
from operator import eq
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

from rlm_memory.errors import InvalidQueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

SAME_WITHIN = 1e-6
"""Raw scores that all lie within this part of the largest are one score. Cosines are sums of float32 products: copies
of one text differ by a few 1e-8, which min-max would stretch to the whole range."""


@overload
def inverse_document_frequency(documents: int, containing: float) -> float: ...
@overload
def inverse_document_frequency(documents: int, containing: Sequence[float] | NDArray[Any]) -> NDArray[np.float64]: ...
def inverse_document_frequency(
    documents: int, containing: float | Sequence[float] | NDArray[Any]
) -> float | NDArray[np.float64]:
    """Return the weight of a term that stands in `containing` of `documents` texts: 0 or more, rarer is heavier.

    ln(1 + (N - n + 0.5) / (n + 0.5)): Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond"
    (2009), section 3, with the 1 that Lucene adds, so that a word in more than half of the texts never counts against
    a text that has it. A number gives a float, an array gives an array of its shape.
    """
    n = np.asarray(containing, dtype=np.float64)
    # The counts may be newer than `documents`: a term in more texts than there are is taken to be in all of them.
    weights = np.log1p((np.maximum(documents - n, 0.0) + 0.5) / (n + 0.5))
    return float(weights) if weights.ndim == 0 else weights


def bm25(
    frequencies: ArrayLike,
    lengths: ArrayLike,
    average_length: float,
    weights: ArrayLike,
    k1: float = 1.2,
    b: float = 0.75,
) -> NDArray[np.float64]:
    """Return the BM25 of each text, shape (n_docs,): 0 where it has none of the terms, else greater than 0.

    Robertson and Zaragoza (2009), section 3, with the factor k1 + 1, as FTS5 has it: a term adds at most
    (k1 + 1) times its weight.

    Args:
        frequencies: How often each term stands in each text, shape (n_docs, n_terms).
        lengths: The number of tokens of each text, shape (n_docs,).
        average_length: The mean number of tokens over the whole collection, not over these texts.
        weights: The inverse document frequency of each term, shape (n_terms,).
        k1: How slowly repetitions stop to matter.
        b: How far long texts are held back: 0 not at all, 1 in full.
    """
    f = np.asarray(frequencies, dtype=np.float64)
    relative_lengths = np.asarray(lengths, dtype=np.float64) / (average_length if average_length > 0 else 1.0)
    denominators = f + k1 * (1.0 - b + b * relative_lengths)[:, np.newaxis]
    # An empty text with b = 1 has nothing below the line.
    saturated = np.divide(f * (k1 + 1.0), denominators, out=np.zeros_like(f), where=f > 0)
    return np.asarray(saturated @ np.asarray(weights, dtype=np.float64), dtype=np.float64)


def normalise(raw: ArrayLike, *, zero_is_no_match: bool = False) -> NDArray[np.float64]:
    """Return the raw scores of one leg stretched over [0, 1]: the best candidate is 1, the worst it saw is 0.

    Candidates that the leg did not see (NaN) get 0 and do not count as the worst. Where all it saw score the same, all
    of them get 1.

    Args:
        raw: The raw scores of the candidates of one query, shape (n,), finite or NaN.
        zero_is_no_match: For the keyword leg: a raw 0 is no match, and stays 0 even where all candidates have it.
    """
    scores = np.asarray(raw, dtype=np.float64)
    seen = ~np.isnan(scores)
    result = np.zeros_like(scores)
    if not seen.any():
        return result
    lowest, highest = scores[seen].min(), scores[seen].max()
    largest = max(abs(lowest), abs(highest))
    # Divided by the largest first: the difference of two numbers near the ends of float64 would be infinite.
    if largest == 0.0 or highest / largest - lowest / largest <= SAME_WITHIN:
        result[seen & (scores != 0.0) if zero_is_no_match else seen] = 1.0
        return result
    result[seen] = (scores[seen] / largest - lowest / largest) / (highest / largest - lowest / largest)
    return result


def checked_alpha(alpha: object) -> float:
    """Return `alpha`, the weight of the semantic leg, as a float in [0, 1].

    Raises:
        InvalidQueryError: It is not a number, or lies outside; True and False are not numbers here.
    """
    if isinstance(alpha, (bool, np.bool_)) or not isinstance(alpha, Real) or not 0.0 <= float(alpha) <= 1.0:
        message = f"alpha is {alpha!r}; expected a number from 0 (keywords alone) to 1 (vectors alone)."
        raise InvalidQueryError(message)
    return float(alpha)


def fuse(semantic_raw: ArrayLike, keyword_raw: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Return the score of each candidate, in [0, 1]: alpha times semantic plus (1 - alpha) times keyword, normalised.

    Measured on LoCoMo: scoring every candidate by both legs before the normalisation is what makes the hybrid better
    than either leg, and than reciprocal rank fusion; a fixed mapping of the cosine is worse with models whose cosines
    lie close together.

    Args:
        semantic_raw: The cosines, shape (n,); NaN where a candidate has no vector or the question has none.
        keyword_raw: The BM25 scores, shape (n,), 0 where no word matches; NaN where the leg was not asked.
        alpha: The weight of the semantic leg, checked by `checked_alpha`.
    """
    weight = checked_alpha(alpha)
    semantic = weight * normalise(semantic_raw)
    return semantic if weight == 1.0 else semantic + (1.0 - weight) * normalise(keyword_raw, zero_is_no_match=True)


def relevance(semantic_raw: ArrayLike, coverage: ArrayLike) -> NDArray[np.float64]:
    """Return how well each candidate answers, in [0, 1], on a scale that is the same for every question.

    The greater of the cosine (0 if negative) and the coverage: the better leg decides, so that a text with the very
    word that was asked for passes a threshold although its vector is far, and the other way round. Neither is
    normalised over the candidates, and neither changes as a store grows.

    Args:
        semantic_raw: The cosines, shape (n,); NaN where a candidate has no vector or the question has none.
        coverage: The share of the question's words that each candidate has, shape (n,); NaN where it was not asked.
    """
    best = np.fmax(np.fmax(semantic_raw, coverage), 0.0)  # of a number and NaN, fmax is the number
    return np.where(best >= 1.0 - SAME_WITHIN, 1.0, best)


def checked_relevance(least: object) -> float:
    """Return `least`, a threshold of relevance, as a float in [0, 1].

    Raises:
        InvalidQueryError: It is not a number, or lies outside; True and False are not numbers here.
    """
    if isinstance(least, (bool, np.bool_)) or not isinstance(least, Real) or not 0.0 <= float(least) <= 1.0:
        message = f"min_relevance is {least!r}; expected a number from 0 (everything passes) to 1."
        raise InvalidQueryError(message)
    return float(least)


def order(
    scores: ArrayLike,
    semantic_raw: ArrayLike,
    origins: Callable[[Sequence[int]], Sequence[tuple[int, str]]],
    n: int,
) -> NDArray[np.intp]:
    """Return the indexes of the `n` best candidates from the best on, shape (n,), or of all if there are fewer.

    By score, then raw cosine (candidates without one last), then newest, then id from small to great: the same
    candidates come in the same order whatever order they were handed in.

    Args:
        scores: The score of each candidate.
        semantic_raw: The raw cosine of each, or NaN.
        origins: Tells of candidates when they were created, and their ids. Asked only if some of the best tie.
        n: How many are wanted.
    """
    cosines = np.asarray(semantic_raw, dtype=np.float64)
    keys = np.array([np.negative(scores, dtype=np.float64), np.where(np.isnan(cosines), np.inf, -cosines)])
    best = np.lexsort(keys[::-1]).tolist()
    ranked = keys.T[best].tolist()
    if any(map(eq, ranked[:n], ranked[1:])):
        first = best[: bisect_right(ranked, ranked[:n][-1])]
        ages = ((-created, id) for created, id in origins(first))
        best = [i for *_, i in sorted(zip(ranked, ages, first, strict=False))]
    return np.array(best[:n], dtype=np.intp)


def maximal_marginal_relevance(
    relevance: ArrayLike, vectors: NDArray[np.floating[Any]], k: int, lambda_mult: float
) -> list[int]:
    """Return the indexes of up to `k` candidates, in the order they are chosen: relevant, and unlike one another.

    Carbonell and Goldstein, "The Use of MMR" (1998): the next is the one with the greatest
    lambda * relevance - (1 - lambda) * (its greatest cosine to one already chosen). The most relevant comes first;
    of equals, the one that stands first in the input.

    Args:
        relevance: How relevant each candidate is, shape (n,), on the scale of a cosine.
        vectors: Their unit vectors, shape (n, dimensions). A row of NaN, no vector, is unlike everything: cosine 0.
        k: How many to choose; fewer come back if there are fewer.
        lambda_mult: 1 is relevance alone, 0 is diversity alone.

    Raises:
        InvalidQueryError: `lambda_mult` is not a number in [0, 1].
    """
    if isinstance(lambda_mult, bool) or not isinstance(lambda_mult, Real) or not 0.0 <= lambda_mult <= 1.0:
        message = f"lambda_mult is {lambda_mult!r}; expected a number from 0 (diversity alone) to 1 (relevance alone)."
        raise InvalidQueryError(message)
    relevances = np.asarray(relevance, dtype=np.float64)
    count = min(k, len(relevances))
    if count <= 0:
        return []
    rows = np.nan_to_num(vectors, nan=0.0)
    free = np.ones(len(relevances), dtype=bool)
    nearest = np.full(len(relevances), -np.inf)
    chosen = [int(relevances.argmax())]
    while len(chosen) < count:
        free[chosen[-1]] = False
        np.maximum(nearest, rows @ rows[chosen[-1]], out=nearest)
        gains = lambda_mult * relevances - (1.0 - lambda_mult) * nearest
        chosen.append(int(np.where(free, gains, -np.inf).argmax()))
    return chosen


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors with length 1, along the last axis; what has that length within rounding stays as it is.

    The square of each length must be within the range of float32, as that of vectors checked at the door is.
    """
    # Summed up in float64 and scaled in float32: 2 us a vector of 1,536 components, where all in float64 takes 19.
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("...i,...i->...", vectors, vectors, dtype=np.float64))
    # or the last bit of a vector that is moved from store to store would change each time
    factors = np.where(np.abs(lengths - 1) < _ROUNDING, 1, 1 / lengths)
    return np.asarray(vectors * factors.astype(np.float32)[..., np.newaxis], dtype=np.float32)


_ROUNDING: Final = 2e-7
"""How far from 1 the length of a vector that was scaled in float32 can be."""
