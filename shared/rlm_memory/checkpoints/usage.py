"""What a reply of a model has cost, in whatever words its provider says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_INPUT: Final = ("input_tokens", "prompt_tokens", "prompt_token_count", "prompt_eval_count")
_CACHED: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")  # Anthropic counts them apart
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
    """Return the usage that the first of these places tells, or None if none does; any of them may tell the cost.

    A place is a mapping or an object, in the words of OpenAI, Anthropic, Google or Ollama. Numbers that no reply can
    have are passed over. The name of the model is "" if there is none.
    """
    cost = next((cost for place in places if (cost := _number(place, _COST)) is not None), None)
    for place in places:
        found = _number(place, _INPUT), _number(place, _OUTPUT)
        if found != (None, None):
            read = int(found[0] or 0) + sum(int(_number(place, (name,)) or 0) for name in _CACHED)
            return Usage((model or "")[:_LONGEST_NAME], read, int(found[1] or 0), cost)
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
