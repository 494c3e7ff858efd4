"""Secrets are not written to disk with the events of a session."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

REDACTED = "[redacted]"
_NAMES: Final = (
    r"(?:api|access|private|signing|encryption)[_-]?key|secret|passw(?:or)?d|passphrase|authorization|credential|cookie"
    r"|(?:access|refresh|auth|session|bearer|id)[_-]?token"
)
# "token" alone is a secret at the end of a name only: there are max_tokens, token_count and token_budget, too
_KEYS = re.compile(rf"{_NAMES}|(?:^|[_-])(?:token|auth|bearer|pat)$|[a-z]Token$", re.IGNORECASE)
_VALUES = re.compile(
    r"""\bsk-(?=[\w-]*\d)[\w-]{8,} | \bsk-[\w-]{16,} | \b[spr]k_(?:live|test)_\w{8,}  # OpenAI, Anthropic, Stripe
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b | \bAIza[\w-]{30,} | \bhf_[A-Za-z0-9]{20,} | \bgsk_[A-Za-z0-9]{20,}
    | \bxox[abeprs]-[A-Za-z0-9-]{10,}
    | \beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*             # a JSON Web Token
    | (?i:\bBearer\s+)[A-Za-z0-9._~+/-]{16,}=* | (?i:\bBasic\s+)[A-Za-z0-9+/]{16,}=*
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | (?<=://)[^\s/:@]+:[^\s/@]+(?=@)               # user and password in an address
    """,
    re.VERBOSE | re.DOTALL,
)
# what a text says of itself: `api_key="…"`, `"Authorization": "…"`, `?token=…`
_NAMED = re.compile(
    rf"""(?P<name>(?:(?:{_NAMES})[\w-]{{0,20}}|(?<![^\W_])token(?![\w-]))[\\"']*\s*[:=]\s*)
    (?: (?P<quote>\\?["'])(?:(?!(?P=quote)).)+ | (?:(?:Bearer|Basic|Token)\s+)?[^\s"'&,;)}}\]]+ )""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)

_TEXT: Final = 2_000
_MARGIN: Final = 4_096
_ITEMS: Final = 50
_DEPTH: Final = 8
_BUDGET: Final = 8_000


def redacted(value: Any) -> Any:
    """Return a copy of an event without what looks like a secret, by the name of its key or by its form.

    Dicts, lists, tuples and texts are looked into; other values are returned as they are.
    """
    match value:
        case str():
            return _without_secrets(value)
        case dict():
            return {key: REDACTED if _hides(value, key) else redacted(each) for key, each in value.items()}
        case [str(name), _] if _KEYS.search(name):  # a header as a pair
            return type(value)((name, REDACTED)) if type(value) in (list, tuple) else value
        case list():
            return [redacted(each) for each in value]
        case tuple() if type(value) is tuple:
            return tuple(redacted(each) for each in value)
    return value


def abridged(value: Any, describe: Callable[[Any], Any] | None = None) -> Any:
    """Return what an event may say of any value: plain data of at most some 10,000 characters, without secrets.

    Texts and containers are cut, and say so. `describe` tells what else there is of an object, as plain data, or
    returns None; without it an object is its class's name in angle brackets.
    """
    return abridge(value, describe)[0]


def abridge(value: Any, describe: Callable[[Any], Any] | None = None) -> tuple[Any, bool]:
    """Return what `abridged` does, and whether it is the whole value: nothing was cut, hidden or only described."""
    abridgement = _Abridgement(describe)
    return abridgement.of(value, _DEPTH), abridgement.whole


class _Abridgement:
    """Walks over a value and stops when enough is said."""

    def __init__(self, describe: Callable[[Any], Any] | None) -> None:
        self._describe = describe
        self._left = _BUDGET
        self.whole = True

    def of(self, value: Any, depth: int) -> Any:
        if self._left <= 0:
            self.whole = False
            return "…"
        match value:
            case None | bool() | float():
                self._left -= 8
                return value
            case int() if value.bit_length() <= 256:
                self._left -= 8
                return value
            case str():
                return self._text(value)
            case bytes() | bytearray() | memoryview():
                self.whole = False
                return self._text(f"<{len(value)} bytes>")
            case Mapping() | list() | tuple() | set() | frozenset() if depth == 0:
                self.whole = False
                return self._text(f"<{type(value).__name__} of {len(value)}>")
            case Mapping():
                self.whole &= type(value) is dict
                return self._mapping(value, depth)
            case list() | tuple() | set() | frozenset():
                self.whole &= type(value) is list
                return self._sequence(list(value), depth)
        self.whole = False
        described = None if self._describe is None or depth == 0 else self._describe(value)
        return self._text(f"<{type(value).__name__}>") if described is None else self.of(described, depth - 1)

    def _text(self, text: str) -> str:
        """Cut a text where no secret is half seen: what is looked through is longer than what is kept."""
        kept = min(_TEXT, self._left)
        if len(text) <= kept:
            said = _without_secrets(text)
            self.whole &= said == text
            self._left -= len(said)
            return said
        self.whole = False
        looked_through = text[: kept + _MARGIN]
        clean = _without_secrets(looked_through)
        if len(looked_through) < len(text):
            clean = clean[: max(0, len(clean) - _MARGIN)]
        said = clean[:kept]
        self._left -= len(said)
        return f"{said}… ({len(text)} characters)"

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        said: dict[str, Any] = {}
        for key, each in value.items():
            if len(said) == _ITEMS or self._left <= 0:
                self.whole = False
                said["…"] = f"{len(value) - len(said)} more"
                break
            name = self._text(key if isinstance(key, str) else str(key) if isinstance(key, int) else type(key).__name__)
            hidden = _hides(value, key)
            self.whole &= isinstance(key, str) and not hidden
            said[name] = REDACTED if hidden else self.of(each, depth - 1)
        return said

    def _sequence(self, value: list[Any], depth: int) -> list[Any]:
        match value:
            case [str(name), _] if _KEYS.search(name):
                self.whole = False
                return [self._text(name), REDACTED]
        said = []
        for place, each in enumerate(value):
            if place == _ITEMS or self._left <= 0:
                self.whole = False
                said.append(f"… {len(value) - place} more")
                break
            said.append(self.of(each, depth - 1))
        return said


def _hides(value: Mapping[Any, Any], key: Any) -> bool:
    """Return whether what is under a key is a secret by its name, or by the name beside it: a header as a dict."""
    if isinstance(key, str) and key.lower() == "value":
        beside = next((each for name, each in value.items() if name in ("name", "key", "header")), None)
        return isinstance(beside, str) and _KEYS.search(beside) is not None
    return isinstance(key, str) and _KEYS.search(key) is not None


def _without_secrets(text: str) -> str:
    return _VALUES.sub(REDACTED, _NAMED.sub(_hidden, text))


def _hidden(found: re.Match[str]) -> str:
    quote = found["quote"] or ""
    return f"{found['name']}{quote}{REDACTED}"
