"""Times two calls that give the same, one right after the other, for the programs that measure an interface."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

Figures = tuple[float, float, float]
"""The medians of the core, of the adapter, and of what the adapter took more."""


def figures(taken: list[tuple[float, float]]) -> Figures:
    core, adapter = zip(*taken, strict=True)
    more = [b - a for a, b in taken]
    return statistics.median(core) * 1e6, statistics.median(adapter) * 1e6, statistics.median(more) * 1e6


def in_turns(core: Callable[[Any], Any], adapter: Callable[[Any], Any], questions: Iterable[Any]) -> Figures:
    """Return the figures of both, asked the same, each in turn the first."""
    taken = []
    for turn, question in enumerate(questions):
        seconds = [0.0, 0.0]
        for i in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            (core, adapter)[i](question)
            seconds[i] = time.perf_counter() - start
        taken.append((seconds[0], seconds[1]))
    return figures(taken)


async def awaited_in_turns(
    core: Callable[[Any], Awaitable[Any]], adapter: Callable[[Any], Awaitable[Any]], questions: Iterable[Any]
) -> Figures:
    """Return the same for calls that are awaited."""
    taken = []
    for turn, question in enumerate(questions):
        seconds = [0.0, 0.0]
        for i in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            await (core, adapter)[i](question)
            seconds[i] = time.perf_counter() - start
        taken.append((seconds[0], seconds[1]))
    return figures(taken)


def show(label: str, adapter: str, found: Figures) -> None:
    """Print the figures of an adapter, by this name."""
    core, with_it, more = found
    print(
        f"{label:24} core {core:6.0f} us   {adapter} {with_it:6.0f} us   "
        f"difference {more:4.0f} us   ratio {1 + more / core:.3f}"
    )
