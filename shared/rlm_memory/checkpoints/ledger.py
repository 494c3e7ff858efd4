"""What a session has cost: every reply of a model, its own and those of its children."""

from __future__ import annotations

import math
import threading
from dataclasses import asdict, dataclass
from typing import Any

from rlm_memory.errors import InvalidInputError


@dataclass(slots=True)
class ModelUsage:
    """What one model was used for; `cost` in US dollars, `unpriced` the calls whose cost nobody knows."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0


class Ledger:
    """Sums of tokens and dollars by model, and of dollars by depth; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, ModelUsage] = {}
        self._depths: dict[int, float] = {}

    @classmethod
    def of(cls, usage: dict[str, Any]) -> Ledger:
        """Return the ledger whose `usage` this was."""
        ledger = cls()
        ledger._models = {model: ModelUsage(**sums) for model, sums in usage.get("models", {}).items()}
        ledger._depths = {int(depth): cost for depth, cost in usage.get("depths", {}).items()}
        return ledger

    def add(self, model: str, input_tokens: int, output_tokens: int, cost: float | None, *, depth: int = 0) -> None:
        """Add one reply; `cost` None counts it as unpriced.

        Raises:
            InvalidInputError: a number is negative or not finite.
        """
        checked(input_tokens, output_tokens, cost)
        with self._lock:
            sums = self._models.setdefault(model, ModelUsage())
            sums.calls += 1
            sums.input_tokens += input_tokens
            sums.output_tokens += output_tokens
            if cost is None:
                sums.unpriced += 1
            else:
                sums.cost += cost
                self._depths[depth] = self._depths.get(depth, 0.0) + cost

    @property
    def total(self) -> float:
        """US dollars, over all models and depths."""
        return math.fsum(sums.cost for sums in self._models.values())

    @property
    def usage(self) -> dict[str, Any]:
        """`{"models": {name: sums}, "depths": {depth: dollars}}`, to be saved and given to `of`."""
        with self._lock:
            return {
                "models": {model: asdict(sums) for model, sums in self._models.items()},
                "depths": {str(depth): cost for depth, cost in self._depths.items()},
            }


def checked(input_tokens: int, output_tokens: int, cost: float | None) -> None:
    """Refuse numbers that a reply cannot have.

    Raises:
        InvalidInputError: a number is negative or not finite.
    """
    numbers = (input_tokens, output_tokens, cost if cost is not None else 0.0)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise InvalidInputError(f"Expected tokens and a cost of 0 or more; got {numbers}.")


def price(model: str, input_tokens: int, output_tokens: int) -> float | None:
    """Return the list price of a reply in US dollars.

    It is None without the extra `prices`, for an unknown model, and for a reply whose tokens nobody has counted.
    """
    if not (input_tokens or output_tokens):
        return None
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    try:
        found = calc_price(Usage(input_tokens=input_tokens, output_tokens=output_tokens), model_ref=model)
    except LookupError:
        return None
    return float(found.total_price)
