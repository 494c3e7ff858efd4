"""Doing a transaction again that a server has undone for another one's sake, and a read that was cut off."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from rlm_memory.errors import StoreConflictError, StoreUnavailableError

P = ParamSpec("P")
R = TypeVar("R")

_PAUSES: Final = (0.01, 0.1)
"""Seconds before the second try and the third, which is the last one."""


class CutReadError(StoreUnavailableError):
    """The connection was lost in the middle of a read, which has changed nothing: it can be made again.

    So does a server end what stands in the way of a replica that must go on.
    """


def repeated(call: Callable[P, R]) -> Callable[P, R]:
    """Return the call as one that is made again where the server has undone what it did, or has cut off what it read.

    Args:
        call: Writes in one transaction, its last, and what it does before may be done twice; takes nothing that is used
            up by reading it, such as a generator.
    """

    @wraps(call)
    def until_done(*args: P.args, **kwargs: P.kwargs) -> R:
        for pause in _PAUSES:
            try:
                return call(*args, **kwargs)
            except (StoreConflictError, CutReadError):
                time.sleep(pause)
        return call(*args, **kwargs)

    return until_done
