"""Which of a question's words a text must have to be among those with the greatest weights.

The weight of a text is the sum of the weights of the question's words in it. Most texts with some rare word have
only that one, and are not among the heaviest, so that to read them all is wasted: of 100,000 texts of 125 words, 3,000
have one of a question's rare words, and 200 weigh as much as the 120th. What a text must have to weigh so much are
combinations of words, which an index can look for. This is the idea of MaxScore (Turtle and Flood, "Query Evaluation:
Strategies and Optimizations", 1995), for an index that is asked once. Pure: numbers in, numbers out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

MOST_WORDS: Final = 10
"""Of so many words all combinations are weighed."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A text must have every one of the first words, and at least one of the second; words are places in a list."""

    every: tuple[int, ...]
    some: tuple[int, ...]


def least_weight(weights: Sequence[int], shares: NDArray[np.float64], wanted: float) -> int:
    """Return the weight that texts may be expected to have, or more, of which there are as many as are wanted.

    Expected as if each word came by chance. Words that come together make that too many texts, the others too few.

    Args:
        weights: Of up to `MOST_WORDS` words.
        shares: In which share of all texts each of them stands.
        wanted: A share of all texts, too. If not so many have any of the words, the least weight of a word is returned.
    """
    sums = np.zeros(1, dtype=np.int64)
    likely = np.ones(1)
    for weight, share in zip(weights, shares, strict=True):
        sums = np.concatenate([sums, sums + weight])
        likely = np.concatenate([likely * (1.0 - share), likely * share])
    heaviest = np.argsort(-sums[1:], kind="stable") + 1  # the first combination is that of no word
    reached = np.searchsorted(np.cumsum(likely[heaviest]), wanted)
    return int(sums[heaviest[reached]]) if reached < len(heaviest) else min(weights)


def requirements(weights: Sequence[int], least: int) -> Iterator[Requirement]:
    """Yield what texts that weigh `least` or more have, one or the other of it; no other text has any of it.

    Args:
        weights: Of the words, the greatest first.
        least: More than 0.
    """
    left = np.cumsum(weights[::-1])[::-1].tolist()

    def beginning_with(every: tuple[int, ...], missing: int, first: int) -> Iterator[Requirement]:
        # Weights fall: what completes the weight stands at the beginning, what only adds to it behind.
        completing = first
        while completing < len(weights) and weights[completing] >= missing:
            completing += 1
        if completing > first:
            yield Requirement(every, tuple(range(first, completing)))
        for word in range(completing, len(weights)):
            if left[word] < missing:
                return
            yield from beginning_with((*every, word), missing - weights[word], word + 1)

    return beginning_with((), least, 0)
