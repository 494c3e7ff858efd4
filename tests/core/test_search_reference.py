"""The search against the plainest reading of its documentation: every node scored, in plain Python."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory import Hit, Memory, Node
from rlm_memory.filters import matches, parse_filter
from support import SettableClock

WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen")
DIMENSIONS = 4

vectors = st.lists(st.integers(-3, 3), min_size=DIMENSIONS, max_size=DIMENSIONS).filter(any)
nodes = st.builds(
    Node,
    text=st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    tier=st.sampled_from(["task", "session", "longterm", "archive"]),
    confidence=st.sampled_from([0.2, 0.5, 0.9]),
    metadata=st.fixed_dictionaries({}, optional={"n": st.integers(0, 2), "s": st.sampled_from(["x", "y"])}),
)
stored = st.lists(st.tuples(nodes, st.none() | vectors), max_size=25)
filters = st.sampled_from(
    [None, {"n": 1}, {"n": {"$ne": 1}}, {"s": {"$in": ["x"]}, "n": {"$gte": 1}}, {"node.confidence": {"$gt": 0.4}}]
)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


def bm25(text: str, question: Sequence[str], texts: Sequence[str]) -> float:
    tokens = Counter(re.findall(r"\w+", text))
    average = sum(len(re.findall(r"\w+", each)) for each in texts) / len(texts)
    score = 0.0
    for word in question:
        containing = sum(word in re.findall(r"\w+", each) for each in texts)
        if containing and tokens[word]:
            weight = math.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5))
            length = 1 - 0.75 + 0.75 * tokens.total() / average
            score += weight * tokens[word] * 2.2 / (tokens[word] + 1.2 * length)
    return score


def stretched(scores: Sequence[float | None], *, zero_is_no_match: bool) -> list[float]:
    seen = [score for score in scores if score is not None]
    if not seen:
        return [0.0] * len(scores)
    low, high = min(seen), max(seen)
    if high - low <= 1e-6 * max(abs(low), abs(high)):
        return [0.0 if score is None or (zero_is_no_match and score == 0) else 1.0 for score in scores]
    return [0.0 if score is None else (score - low) / (high - low) for score in scores]


def expected(
    kept: list[tuple[Node, Any]], among: list[Node], question: str, vector: Sequence[float], alpha: float
) -> list[tuple[str, float]]:
    """Return every id that passes the filters with its score, the best first."""
    words = list(dict.fromkeys(question.split()))
    semantic = [None if alpha == 0 or own is None else cosine(own, vector) for _, own in kept]
    has_words = alpha < 1 and any(word in node.text.split() for word in words for node in among)
    keyword = [bm25(node.text, words, [each.text for each in among]) if has_words else None for node, _ in kept]
    scores = [
        alpha * s + (1 - alpha) * k
        for s, k in zip(
            stretched(semantic, zero_is_no_match=False), stretched(keyword, zero_is_no_match=True), strict=True
        )
    ]
    return [(node.id, score) for (node, _), score in zip(kept, scores, strict=True)]


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@given(
    stored=stored,
    question=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join),
    vector=vectors,
    alpha=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    where=filters,
    tiers=st.none() | st.lists(st.sampled_from(["task", "session", "longterm", "archive"]), min_size=1, unique=True),
    k=st.integers(0, 30),
)
def test_search_gives_what_scoring_every_node_gives(
    stored: list[tuple[Node, list[int] | None]],
    question: str,
    vector: list[int],
    alpha: float,
    where: dict[str, Any] | None,
    tiers: list[str] | None,
    k: int,
) -> None:
    clock = SettableClock()
    with Memory.open(":memory:", embedder=None, clock=clock) as memory:
        all_nodes: list[tuple[Node, Any]] = []
        for number, (node, own) in enumerate(stored):
            memory.add([node], ids=[f"{number:02}"], embeddings=[own])
            all_nodes.append((memory.get(f"{number:02}")[0], own))
            clock.now += timedelta(seconds=1)
        if not any(own for _, own in stored) and alpha == 1:
            alpha = 0.5  # a store without vectors is searched by its words, or by nothing
        condition = parse_filter(where)
        wanted = tiers or ["task", "session", "longterm"]
        kept = [(node, own) for node, own in all_nodes if node.tier in wanted and matches(condition, node)]
        hits = memory.search(question, embedding=vector, k=k, alpha=alpha, where=where, tiers=tiers)
    reference = expected(kept, [node for node, _ in all_nodes], question, vector, alpha)
    _compare(hits, reference, dict(zip([node.id for node, _ in kept], kept, strict=True)), vector, k, alpha)


def _compare(
    hits: list[Hit],
    reference: list[tuple[str, float]],
    kept: dict[str, tuple[Node, Any]],
    vector: Sequence[float],
    k: int,
    alpha: float,
) -> None:
    assert len(hits) == min(k, len(reference))
    scores = dict(reference)
    for hit in hits:
        assert hit.score == pytest.approx(scores[hit.id], abs=1e-5)
        own = kept[hit.id][1]
        if alpha > 0 and own is not None:
            assert hit.semantic == pytest.approx(cosine(own, vector), abs=1e-6)
        else:
            assert hit.semantic is None
    # what is left out scores no better than what is found, and what is found is in order
    found = {hit.id for hit in hits}
    left_out = [score for id, score in reference if id not in found]
    if hits and left_out:
        assert max(left_out) <= hits[-1].score + 1e-5
    for better, worse in pairwise(hits):
        assert better.score >= worse.score
        if better.score == worse.score and better.semantic == worse.semantic:
            assert better.node.created_at is not None
            assert worse.node.created_at is not None
            assert better.node.created_at > worse.node.created_at  # of equals, the newer first


@pytest.mark.parametrize("dimensions", [8, 300])
def test_the_nearest_are_found_among_thousands(dimensions: int) -> None:
    generator = np.random.default_rng(3)
    centres = generator.standard_normal((40, dimensions))
    rows = centres[generator.integers(0, 40, 3000)] + 0.7 * generator.standard_normal((3000, dimensions))
    questions = rows[::300] + 0.3 * generator.standard_normal((10, dimensions))
    with Memory.open(":memory:", embedder=None) as memory:
        memory.add([f"text {i}" for i in range(3000)], ids=[str(i) for i in range(3000)], embeddings=rows)
        found = [{int(hit.id) for hit in memory.search(embedding=question, k=10)} for question in questions]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    exact = [set(np.argsort(-(unit @ question))[:10].tolist()) for question in questions]
    shared = [len(a & b) / 10 for a, b in zip(found, exact, strict=True)]
    assert np.mean(shared) >= (1.0 if dimensions == 8 else 0.97)
