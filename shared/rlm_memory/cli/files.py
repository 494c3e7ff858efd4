"""Stores text files as passages, so that a file that is stored again replaces itself."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rlm_memory.cli.passages import Passage
from rlm_memory.errors import InvalidInputError
from rlm_memory.memory import Memory
from rlm_memory.records import Node

BATCH = 256
"""Passages embedded and stored at once: enough for a full request, few enough that an interrupted run keeps most of its
work and that the progress bar moves."""


@dataclass(frozen=True, slots=True)
class TextFile:
    """A text that was read, the name of where it came from, and the beginning of its nodes' ids."""

    source: str
    key: str
    content: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of the passages of one text."""

    source: str
    passages: int
    added: int
    unchanged: int
    removed: int


def read_text(file: str, *, name: str | None = None) -> TextFile:
    """Return the text of a UTF-8 file, or of standard input for `-`.

    The ids of a file depend on where it is. Those of standard input depend on `name`, or on the text itself where it
    has no name: an unnamed text never replaces another one.

    Raises:
        InvalidInputError: The file cannot be read, or is not UTF-8 text.
    """
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        content = data.decode("utf-8-sig")
    except IsADirectoryError as error:
        raise InvalidInputError(f"{file} is a folder; name the files in it, such as {Path(file, '*.md')}.") from error
    except OSError as error:
        raise InvalidInputError(f"Cannot read {file}: {error.strerror}. Check the name and its folder.") from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{file} is not UTF-8 text (byte {error.start}); convert it first.") from error
    content = content.replace("\r\n", "\n").replace("\r", "\n")
    if file != "-":
        # a file's name may hold bytes that are no text, and metadata may not
        source = os.fsencode(Path(file).resolve()).decode("utf-8", "backslashreplace")
        return TextFile(source, _key(source), content)
    return TextFile(name or "standard input", _key(name if name is not None else content), content)


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def store_text(
    memory: Memory, text: TextFile, passages: list[Passage], template: Node, *, advance: Callable[[int], None]
) -> Stored:
    """Store the passages of a text and take away those that an earlier version of it had; return what was done.

    A passage that is stored already with the same text and type stays as it is, with its tier and its vector.

    Args:
        memory: The store.
        text: Where the passages are from.
        passages: All passages of the text, in order.
        template: What the new nodes have in common: type, tier, confidence.
        advance: Called with how many more passages are done.
    """
    nodes = [
        replace(
            template,
            id=f"{text.key}-{position}",
            text=passage.text,
            metadata={"source": text.source, "position": position, "start": passage.start},
        )
        for position, passage in enumerate(passages, start=1)
    ]
    before = {node.id: node for node in memory.get([node.id for node in nodes])}
    changed = [node for node in nodes if not _same(node, before.get(node.id))]
    unchanged = len(nodes) - len(changed)
    advance(unchanged)
    for first in range(0, len(changed), BATCH):
        batch = changed[first : first + BATCH]
        memory.add(batch)
        advance(len(batch))
    removed = memory.delete(_left_over(memory, text, len(nodes)))
    return Stored(text.source, len(nodes), len(changed), unchanged, removed)


def _same(node: Node, stored: Node | None) -> bool:
    return stored is not None and (node.text, node.type, dict(node.metadata)) == (
        stored.text,
        stored.type,
        dict(stored.metadata),
    )


def _left_over(memory: Memory, text: TextFile, count: int) -> list[str]:
    """Return the ids of the passages behind the last one, as far as an earlier version of the text had them."""
    left: list[str] = []
    while True:
        ids = [f"{text.key}-{position}" for position in range(count + 1, count + BATCH + 1)]
        found = [node.id for node in memory.get(ids)]
        left += found
        if len(found) < len(ids):
            return left
        count += BATCH
