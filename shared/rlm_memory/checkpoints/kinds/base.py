"""What a kind of value is to the codec: a tag, how it is written, how it is rebuilt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rlm_memory.checkpoints.heap import Slot, Slots

if TYPE_CHECKING:
    from rlm_memory.checkpoints.codec import Reader, Writer


class UnsavableError(Exception):
    """A value cannot be written; the message is the reason that is reported."""


class UnrestorableError(Exception):
    """A node cannot be rebuilt; the message is the reason that is reported."""


@dataclass(frozen=True, slots=True)
class Later:
    """What a `write` returns whose node can be written only after everything else has been visited."""

    parts: Callable[[], Parts]


Parts: TypeAlias = tuple[Slots, Any]
"""The slots and the data of a node."""
Write: TypeAlias = "Callable[[Any, Writer], Parts | Later]"
Build: TypeAlias = "Callable[[Any, Any, Reader], Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of value that cannot change: it is built when everything inside it is there.

    `build` gets the values of the slots, in a list or dict as they were written, the data, and the reader. `reads`: it
    looks into those values, so that they must be filled before. `code` marks a kind that is rebuilt only for a file
    that is signed and trusted.
    """

    tag: str
    types: tuple[type, ...] = ()
    write: Write
    build: Build
    reads: bool = False
    code: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MutableKind:
    """A kind of value that can hold itself: first made empty, then filled.

    `make` gets the raw slots, the data and the reader; `fill` gets the empty value and the values of the slots. The
    slots that `head` picks are there before `make` is called. `reads` and `code` are those of `Kind`. `hashes`: filling
    it hashes what is put in. `defines_hash`: its hash may depend on what it is filled with.
    """

    tag: str
    types: tuple[type, ...] = ()
    write: Write
    make: Build
    fill: Callable[[Any, Any, Any], None]
    head: Callable[[Any], list[Slot]] | None = None
    reads: bool = False
    hashes: bool = False
    defines_hash: bool = False
    code: bool = False


AnyKind: TypeAlias = Kind | MutableKind
