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


class Idle(Forked, Protocol):
    """Something that no other thread may be using while the process forks."""

    def before_fork(self) -> None:
        """Wait until no other thread uses it, and let none begin."""
        ...

    def after_fork_in_parent(self) -> None:
        """Let the others go on."""
        ...


_F = TypeVar("_F", bound=Forked)
_I = TypeVar("_I", bound=Idle)
_kept: weakref.WeakSet[Forked] = weakref.WeakSet()
_idle: weakref.WeakSet[Idle] = weakref.WeakSet()
_held: list[Idle] = []  # alive from before a fork to after it


def renewed_in_child(thing: _F) -> _F:
    """Return the thing; in every child that is forked while it lives, its `after_fork_in_child` is called first."""
    _kept.add(thing)
    return thing


def idle_through_fork(thing: _I) -> _I:
    """Return the thing; no fork happens while another thread uses it, and a child gets it as `renewed_in_child`."""
    _idle.add(thing)
    return renewed_in_child(thing)


def _before_fork() -> None:
    _held.extend(_idle)
    for thing in _held:
        thing.before_fork()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().after_fork_in_parent()


def _after_fork_in_child() -> None:
    _held.clear()
    for thing in list(_kept):
        thing.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # where there is no fork, there is nothing to renew
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
