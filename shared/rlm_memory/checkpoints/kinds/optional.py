"""Libraries that are used when they are installed."""

from __future__ import annotations

import importlib
from typing import Any


def optional(name: str) -> Any:
    """Return the module, or None where it is not installed.

    It is typed as Any: a type checker cannot count on a library that may not be there.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
