"""How far the nodes in session are weighed, and by which rules: what a sweep that was interrupted goes on from.

An engine keeps it as one text, beside a list of the nodes of which something has changed since they were weighed. Nodes
are weighed in the order of their numbers: those up to the last one are weighed, but for the listed ones, and those
after it are not.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Final

_LAST: Final = 2**63 - 1
"""No node has a greater number."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """Up to which number nodes are weighed by some rules.

    `era` tells one beginning from another: who has listed what there is to weigh before all was to be weighed anew does
    not know of everything, and must not note that it is weighed. It is None where these rules have not begun.
    """

    rules: str
    era: int | None = None
    up_to: int = 0

    @property
    def text(self) -> str:
        """The same as a text, which `weighed_of` reads."""
        return json.dumps([self.rules, self.era, self.up_to])

    def begun(self) -> Weighed:
        """Return the same, begun if it is not."""
        return self if self.era is not None else replace(self, era=random.getrandbits(48))

    def and_up_to(self, number: int = _LAST) -> Weighed:
        """Return this after the nodes up to this number, or all, are weighed too."""
        return replace(self, up_to=max(self.up_to, number))


def weighed_of(text: str | None, rules: str) -> Weighed:
    """Return how far these rules have weighed, by the text that is kept; nothing where it tells of others."""
    match json.loads(text or "null"):
        case [str(weighed_by), int(era), int(up_to)] if weighed_by == rules:
            return Weighed(rules, era, up_to)
        case _:
            return Weighed(rules)
