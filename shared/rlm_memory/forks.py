"""What a forked child has to make anew: locks that a thread of the parent may hold, files that are the parent's."""

from __future__ import annotations

import os
import weakref
from typing import Protocol, TypeVar


class Forked(Protocol):
    """Something that cannot go on in a forked child as it is."""

    def after_fork_in_child(self) -> None:
        """Make it usable in the child, without touching what the parent goes on using."""
        ...


_F = TypeVar("_F", bound=Forked)
_kept: weakref.WeakSet[Forked] = weakref.WeakSet()


def renewed_in_child(thing: _F) -> _F:
    """Return the thing; in every child that is forked while it lives, its `after_fork_in_child` is called first."""
    _kept.add(thing)
    return thing


def _after_fork_in_child() -> None:
    for thing in list(_kept):
        thing.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # where there is no fork, there is nothing to renew
    os.register_at_fork(after_in_child=_after_fork_in_child)
