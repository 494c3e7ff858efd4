"""How far the nodes in session are weighed, and by which rules: what a sweep that was interrupted goes on from.

An engine keeps it as one text, beside a list of the nodes of which something has changed since they were weighed. Nodes
are weighed in the order of their numbers: those up to the last one are weighed, but for the listed ones, and those
after it are not.

Applications with different rules may take turns. There is one list for all of them, and who weighs a node takes it off;
so the text has, for each of the others, what was taken off that these have not weighed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final

_LAST: Final = 2**63 - 1
"""No node has a greater number."""

_MOST_RULES: Final = 4
"""Rules that changed with each start of an application would leave something behind each time."""

_MOST_MISSED: Final = 500
"""The text stands in a row that each write of nodes changes: longer, it would be slower to write than its use is worth.
Rules that have missed more begin anew."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Up to which number nodes are weighed by some rules, and what these have missed of that.

    `era` tells one beginning from another: who has listed what there is to weigh before all was to be weighed anew does
    not know of everything, and must not note that it is weighed. It is None where these rules have not begun.
    """

    rules: str
    era: int | None = None
    up_to: int = 0
    missed: frozenset[int] = frozenset()
    others: tuple[Weighed, ...] = ()
    """The same of other rules, those that have weighed last first; they know of no others."""

    @property
    def text(self) -> str:
        """The same as a text, which `weighed_of` reads."""
        of_each = (self, *self.others[: _MOST_RULES - 1])
        kept = [[each.rules, each.era, each.up_to, *_steps(each.missed)] for each in of_each]
        return json.dumps(kept, separators=(",", ":"))

    def begun(self) -> Weighed:
        """Return the same, begun if it is not."""
        return self if self.era is not None else replace(self, era=random.getrandbits(48))

    def and_up_to(self, number: int = _LAST) -> Weighed:
        """Return this after the nodes up to this number, or all, are weighed too."""
        return replace(self, up_to=max(self.up_to, number))

    def and_nodes(self, weighed: Iterable[int], taken: Iterable[int]) -> Weighed:
        """Return this after nodes are weighed, of which some were on the list and are taken off it."""
        gone = frozenset(taken)
        missing = (each._without(gone) for each in self.others)
        return replace(
            self,
            missed=self.missed.difference(weighed),
            others=tuple(each for each in missing if len(each.missed) <= _MOST_MISSED),
        )

    def _without(self, gone: frozenset[int]) -> Weighed:
        return replace(self, missed=self.missed | {number for number in gone if number <= self.up_to})


def weighed_of(text: str | None, rules: str) -> Weighed:
    """Return how far these rules have weighed, by the text that is kept; nothing where it does not tell of them."""
    own, others = Weighed(rules), []
    for kept in json.loads(text or "[]"):
        match kept:
            case [str(weighed_by), int(era), int(up_to), *steps]:
                each = Weighed(weighed_by, era, up_to, frozenset(accumulate(steps)))
                if weighed_by == rules:
                    own = each
                else:
                    others.append(each)
    return replace(own, others=tuple(others))


def _steps(numbers: Iterable[int]) -> Iterator[int]:
    """Yield the first of these numbers and how far it is to each next one, which is shorter to write."""
    for before, number in pairwise((0, *sorted(numbers))):
        yield number - before
