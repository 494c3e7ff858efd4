"""Pictures of scores and tiers, by matplotlib (the extra `notebooks`); they fit light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rlm_memory.display import shortened
from rlm_memory.errors import InvalidInputError, MissingExtraError
from rlm_memory.records import TIERS, Hit, TierCounts
from rlm_memory.scoring import normalise

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


def plot_tiers(timeline: Sequence[TierCounts]) -> Axes:
    """Draw how many nodes were in each tier over time, stacked, and return the axes.

    Args:
        timeline: What `Memory.timeline` gives: the counts from each moment on.

    Raises:
        InvalidInputError: There is nothing to draw.
    """
    if not timeline:
        raise InvalidInputError("There are no nodes to draw; add some first.")
    with _axes((7, 3)) as axes:
        moments: list[Any] = [step.at for step in timeline]
        counts = [[step.counts.get(tier, 0) for step in timeline] for tier in TIERS]
        axes.stackplot(moments, *counts, labels=TIERS, colors=[_COLOURS[tier] for tier in TIERS], step="post")
        axes.set_ylabel("nodes")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.figure.autofmt_xdate()
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, labelcolor=_INK)
    return axes


def plot_scores(hits: Sequence[Hit], *, alpha: float = 0.5) -> Axes:
    """Draw what each hit's score is made of, the best at the top, and return the axes.

    The two parts are the raw scores stretched over the hits that are drawn, as the search stretches them over all its
    candidates; so the bars show what tells the hits from one another, and their sum may differ from `score`.

    Args:
        hits: What `Memory.search` gives.
        alpha: The weight of meaning against words that the search was made with.

    Raises:
        InvalidInputError: There is nothing to draw.
    """
    if not hits:
        raise InvalidInputError("There are no hits to draw.")
    semantic = alpha * normalise([float("nan") if hit.semantic is None else hit.semantic for hit in hits])
    keyword = (1 - alpha) * normalise([hit.keyword or 0.0 for hit in hits], zero_is_no_match=True)
    with _axes((7, 0.4 * len(hits) + 1)) as axes:
        rows = range(len(hits))
        axes.barh(rows, semantic, color=_SEMANTIC, label=f"semantic, weight {alpha:g}")
        axes.barh(rows, keyword, left=semantic, color=_KEYWORD, label=f"keyword, weight {1 - alpha:g}")
        axes.set_yticks(rows, [shortened(hit.text, 48) for hit in hits])
        axes.invert_yaxis()
        axes.set_xlabel("part of the score")
        axes.legend(loc="lower right", frameon=False, labelcolor=_INK)
    return axes


@contextmanager
def _axes(size: tuple[float, float]) -> Iterator[Axes]:
    style: dict[Any, Any] = {
        "axes.edgecolor": _INK, "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK, "text.color": _INK,
        "axes.facecolor": "none", "figure.facecolor": "none", "savefig.transparent": True,
        "axes.spines.top": False, "axes.spines.right": False,
    }  # fmt: skip
    with plt.rc_context(style):
        _, axes = plt.subplots(figsize=size, layout="constrained")
        yield axes
