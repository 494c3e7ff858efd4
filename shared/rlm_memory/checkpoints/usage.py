"""What a reply of a model has cost, in whatever words its provider says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_INPUT: Final = ("input_tokens", "prompt_tokens", "prompt_token_count", "prompt_eval_count")
_OUTPUT: Final = ("output_tokens", "completion_tokens", "candidates_token_count", "eval_count")
_COST: Final = ("total_cost", "cost")
_LONGEST_NAME: Final = 200


class Usage(NamedTuple):
    """A reply of a model: its tokens, and its cost in US dollars if the provider tells it."""

    model: str
    input_tokens: int
    output_tokens: int
    cost: float | None = None


def usage_of(model: str | None, *places: Any) -> Usage | None:
    """Return the usage that the first of these places tells, or None if none does.

    A place is a mapping or an object, in the words of OpenAI, Anthropic, Google or Ollama. Numbers that no reply can
    have are passed over. A model without a name is "unknown".
    """
    for place in places:
        found = _number(place, _INPUT), _number(place, _OUTPUT)
        if found == (None, None):
            continue
        tokens = [0 if each is None else int(each) for each in found]
        name = model[:_LONGEST_NAME] if model else "unknown"
        return Usage(name, tokens[0], tokens[1], _number(place, _COST))
    return None


def named(place: Any, name: str) -> Any:
    """Return what a mapping or an object has under a name, or None."""
    return place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)


def _number(place: Any, names: tuple[str, ...]) -> float | None:
    for name in names:
        number = named(place, name)
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if is_number and math.isfinite(number) and number >= 0:
            return float(number)
    return None
