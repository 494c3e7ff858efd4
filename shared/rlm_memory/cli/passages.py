"""Splits a long text into passages that are small enough to be found by what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rlm_memory.errors import InvalidInputError

_PARAGRAPH_END = r"\n[^\S\n]*\n\s*"
# A closing quote or bracket belongs to its sentence; Chinese and Japanese put no space after the full stop.
_SENTENCE_END = r"[.!?…][\"'”’»)\]]*\s+|[。！？][」』”’）]*\s*"  # noqa: RUF001
_BOUNDS = [re.compile(pattern) for pattern in (_PARAGRAPH_END, f"{_PARAGRAPH_END}|{_SENTENCE_END}", r"\n\s*", r"\s+")]
"""Where a text may be divided, the best first: after a paragraph, a sentence, a line, a word."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a text, without white space around it; `start` counts characters from the beginning of the text."""

    text: str
    start: int


def split_text(text: str, *, size: int = 1000, overlap: int = 0) -> list[Passage]:
    """Return the passages of a text, in order.

    A passage ends with a paragraph where that is possible, else with a sentence, a line or a word, and only a word
    longer than `size` is cut. Without overlap every character but white space is in exactly one passage.

    Args:
        text: Any text; a blank one has no passages.
        size: The most characters of a passage.
        overlap: At most how many characters from the end of a passage the next one repeats: whole sentences, else
            lines, else words, and never so many that the passage would not fit into `size`.

    Raises:
        InvalidInputError: `size` is less than 1, or `overlap` is negative or not less than `size`.
    """
    if size < 1:
        raise InvalidInputError(f"size must be 1 character or more, got {size}.")
    if not 0 <= overlap < size:
        raise InvalidInputError(f"overlap must be 0 or more and less than size ({size}), got {overlap}.")
    passages: list[Passage] = []
    start = end = 0
    for piece_start, piece_end in _pieces(text, 0, len(text), size):
        if end > start and piece_end - start > size:
            passages.append(Passage(text[start:end], start))
            start = _resume(text, start, end, earliest=max(end - overlap, piece_end - size), otherwise=piece_start)
        elif end == start:
            start = piece_start
        end = piece_end
    if end > start:
        passages.append(Passage(text[start:end], start))
    return passages


def _pieces(text: str, start: int, end: int, size: int, level: int = 0) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the largest parts that fit into `size`, each divided no further than it must be."""
    if level == len(_BOUNDS):
        for cut in range(start, end, size):
            yield cut, min(cut + size, end)
        return
    for first, last in _parts(text, start, end, _BOUNDS[level]):
        if last - first <= size:
            yield first, last
        else:
            yield from _pieces(text, first, last, size, level + 1)


def _parts(text: str, start: int, end: int, separator: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of what lies between the separators, each without white space around it."""
    bounds = [start, *(match.end() for match in separator.finditer(text, start, end)), end]
    for part_start, part_end in pairwise(bounds):
        part = text[part_start:part_end]
        stripped = part.strip()
        if stripped:
            first = part_start + len(part) - len(part.lstrip())
            yield first, first + len(stripped)


def _resume(text: str, start: int, end: int, *, earliest: int, otherwise: int) -> int:
    """Return where the passage after text[start:end] begins: with what is repeated of that one, or at `otherwise`."""
    for bound in _BOUNDS[1:]:
        for first, _ in _parts(text, start, end, bound):
            if start < first >= earliest:
                return first
    return otherwise


def best_sentence(text: str, question: str) -> str:
    """Return the sentence of a text that has most of the longer words of a question, the first one of equals.

    >>> best_sentence("Tea is hot. Ada likes tea with milk.", "What does Ada like in her tea, milk?")
    'Ada likes tea with milk.'
    """
    asked = _long_words(question)
    sentences = [" ".join(sentence.split()) for sentence in re.split(rf"(?<=[.!?])\s+|{_PARAGRAPH_END}", text)]
    return max(sentences, key=lambda sentence: len(asked & _long_words(sentence)))


def _long_words(text: str) -> set[str]:
    return set(re.findall(r"\w{4,}", text.lower()))
