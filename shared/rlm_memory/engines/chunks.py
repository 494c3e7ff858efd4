"""Large values in pieces, the same on every engine: chunks that are found again by hash, and trees of lists of them.

What stands for a value is a depth and a content. At depth 0 the content is the value. Else it lists numbers of chunks:
at depth 1 of those whose contents make up the value, at depth 2 of those that hold such lists, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlm_memory.chunking import cut_list
from rlm_memory.errors import StoreCorruptError
from rlm_memory.records import Problem

INLINE: Final = 512
"""Values up to this many bytes are kept where they are: less than what listing their pieces takes."""

INLINE_WRITE: Final = 4096
"""The same for writes, which have little in common with anything: only a large one is found again in a value."""

_LISTED: Final = 32
"""Lists of chunks longer than this go into chunks themselves."""

_HASH_BYTES: Final = 16

Numbers: TypeAlias = NDArray[np.uint32]
Contents: TypeAlias = Callable[[list[int]], list[bytes]]
"""Given numbers of chunks, returns their contents in this order."""


def hash_of(content: bytes) -> bytes:
    """Return the hash by which a chunk is found again."""
    return blake2b(content, digest_size=_HASH_BYTES).digest()


def list_of(numbers: Sequence[int]) -> Numbers:
    """Return numbers of chunks as they are written into a list."""
    return np.array(numbers, dtype="<u4")


def tree_over(numbers: Numbers, numbered: Callable[[list[bytes]], Numbers]) -> tuple[int, bytes]:
    """Return the depth and the content that stand for a value.

    Args:
        numbers: Of the chunks that make it up.
        numbered: Given contents, returns the numbers of chunks that hold them.
    """
    depth = 1
    while len(numbers) > _LISTED:
        depth += 1
        numbers = numbered([part.tobytes() for part in cut_list(numbers)])
    return depth, numbers.tobytes()


def value_of(depth: int, content: bytes, contents: Contents) -> bytes:
    """Return the value that depth and content stand for."""
    for _ in range(depth):
        content = b"".join(contents(_numbers_in(content)))
    return bytes(content)


def sound(rows: Sequence[tuple[bytes, bytes]], count: int) -> list[bytes]:
    """Return the contents of chunks that were asked for, given as (hash, content).

    Raises:
        StoreCorruptError: There are fewer than so many, or one is not what was stored.
    """
    if len(rows) != count:
        raise StoreCorruptError("A value of a thread lacks a part of its content; see Memory.check().")
    if any(hash_of(content) != hashed for hashed, content in rows):
        raise StoreCorruptError("A part of a value of a thread is not what was stored; see Memory.check().")
    return [content for _, content in rows]


def reached_from(trees: Iterable[tuple[int, bytes]], contents: Contents) -> set[int]:
    """Return the numbers of all chunks that are in values, given as (depth, content), the lists among them too."""
    reached: set[int] = set()
    lists: dict[int, set[int]] = {}  # those to look into, by how deep they are
    for depth, content in trees:
        numbers = _numbers_in(content)
        reached.update(numbers)
        lists.setdefault(depth - 1, set()).update(numbers)
    for depth in range(max(lists, default=0), 0, -1):
        numbers = _numbers_in(b"".join(contents(sorted(lists.get(depth, ())))))
        reached.update(numbers)
        lists.setdefault(depth - 1, set()).update(numbers)
    return reached


def chunk_problems(
    where: str, stored: Iterable[tuple[int, bytes, bytes]], reached: Callable[[], set[int]]
) -> Iterator[Problem]:
    """Yield what is wrong with the chunks of a thread.

    Args:
        where: The thread, as it is named in a problem.
        stored: Its chunks, as (number, hash, content).
        reached: Returns the numbers of those that are in a value.
    """
    numbers = set()
    for number, hashed, content in stored:
        numbers.add(number)
        if hash_of(content) != hashed:
            yield Problem(where, f"chunk {number} is not the one that was stored")
    try:
        in_values = reached()
    except StoreCorruptError as error:
        yield Problem(where, f"a list of chunks is damaged or not there: {error}")
        return
    if missing := in_values - numbers:
        yield Problem(where, f"{len(missing)} chunks of its values are not there")
    if lost := numbers - in_values:
        yield Problem(where, f"{len(lost)} chunks belong to no value")


def _numbers_in(listed: bytes) -> list[int]:
    numbers: list[Any] = np.frombuffer(listed, dtype="<u4").tolist()
    return numbers
