"""Pictures of scores and tiers, by matplotlib (the extra `notebooks`); they fit light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from rlm_memory.display import shortened
from rlm_memory.errors import InvalidInputError, MissingExtraError
from rlm_memory.records import TIERS, Hit, TierCounts

try:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator
except ImportError as _error:
    raise MissingExtraError("Drawing", "notebooks") from _error

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito, "Color Universal Design" (2008): told apart by everybody, and visible on white and on black.
_COLOURS: Final = {"task": "#56B4E9", "session": "#009E73", "longterm": "#E69F00", "archive": "#999999"}
_SEMANTIC, _KEYWORD = "#0072B2", "#D55E00"
_INK: Final = "#808080"
_DARKER_INK: Final = "#7F7F7F"
"""Nobody sees the difference, but Jupyter does: it lays white or black behind a transparent picture whose ticks are all
of a dark or all of a light colour."""


def plot_tiers(timeline: Sequence[TierCounts]) -> Axes:
    """Draw how many nodes were in each tier over time, stacked, and return the axes.

    The last counts are drawn on for a twentieth of the time, so that they can be seen.

    Args:
        timeline: What `Memory.timeline` gives: the counts from each moment on.

    Raises:
        InvalidInputError: There is nothing to draw.
    """
    if not timeline:
        raise InvalidInputError("There are no nodes to draw; add some first.")
    axes = plain_axes(7, 3)
    moments: list[Any] = [step.at for step in timeline]
    moments.append(moments[-1] + max((moments[-1] - moments[0]) / 20, timedelta(minutes=1)))
    counts = [[step.counts.get(tier, 0) for step in (*timeline, timeline[-1])] for tier in TIERS]
    axes.stackplot(moments, *counts, labels=TIERS, colors=[_COLOURS[tier] for tier in TIERS], step="post")
    axes.set_ylabel("nodes")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.figure.autofmt_xdate()
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, labelcolor=_INK)
    return axes


def plot_scores(hits: Sequence[Hit]) -> Axes:
    """Draw the score of each hit as the sum of its two parts, the best at the top, and return the axes.

    Raises:
        InvalidInputError: There is nothing to draw.
    """
    if not hits:
        raise InvalidInputError("There are no hits to draw.")
    semantic, keyword = score_parts(hits)
    axes = plain_axes(7, 0.4 * len(hits) + 1)
    rows = range(len(hits))
    axes.barh(rows, semantic, color=_SEMANTIC, label="semantic")
    axes.barh(rows, keyword, left=semantic, color=_KEYWORD, label="keyword")
    axes.set_yticks(rows, [shortened(hit.text, 48) for hit in hits])
    axes.invert_yaxis()
    axes.set_xlabel("score")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, labelcolor=_INK)
    return axes


def score_parts(hits: Sequence[Hit]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how much of the score of each hit is its semantic part, and how much its keyword part.

    A score is linear in the two raw scores, with the same three numbers for all hits of one search, and a text without
    any word of the question has no keyword part. Three hits give away the numbers; of fewer, the parts are a guess
    whose sum is right.
    """
    seen = np.array([hit.semantic is not None for hit in hits], dtype=np.float64)
    raw = np.column_stack([[hit.semantic or 0.0 for hit in hits], seen, [hit.keyword or 0.0 for hit in hits]])
    scores = np.array([hit.score for hit in hits])
    numbers = np.linalg.lstsq(raw, scores, rcond=None)[0]
    keyword = np.clip(raw[:, 2] * numbers[2], 0.0, scores)
    return scores - keyword, keyword


def plain_axes(width: float = 7, height: float = 3) -> Axes:
    """Return axes without a background, in a grey that is seen on white and on black; width and height in inches."""
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    axes.tick_params(axis="x", colors=_INK)
    axes.tick_params(axis="y", colors=_DARKER_INK)
    axes.spines[["left", "bottom"]].set_color(_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    return axes
