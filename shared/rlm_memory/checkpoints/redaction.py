"""Secrets are not written to disk with the events of a session."""

from __future__ import annotations

import re
from typing import Any

REDACTED = "[redacted]"
_KEYS = re.compile(
    r"(api[_-]?key|secret|password|passwd|authorization|access[_-]?token|refresh[_-]?token|private[_-]?key)", re.I
)
_VALUES = re.compile(
    r"\b(sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|xox[abpr]-[A-Za-z0-9-]{10,}"
    r"|Bearer\s+[A-Za-z0-9._~+/-]{16,}=*)"
)


def redacted(value: Any) -> Any:
    """Return a copy of an event without what looks like a secret, by the name of its key or by its form.

    Dicts, lists, tuples and texts are looked into; other values are returned as they are.
    """
    match value:
        case str():
            return _VALUES.sub(REDACTED, value)
        case dict():
            return {
                key: REDACTED if isinstance(key, str) and _KEYS.search(key) else redacted(each)
                for key, each in value.items()
            }
        case list():
            return [redacted(each) for each in value]
        case tuple() if type(value) is tuple:
            return tuple(redacted(each) for each in value)
    return value
