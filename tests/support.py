"""Stand-ins for what the core asks of the outside: an embedder that needs no model, a clock that a test sets."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from rlm_memory.ports import Vector


class WordEmbedder:
    """Embeds a text as the sum of fixed random vectors, one for each of its words.

    Texts that share words are near, equal texts have equal vectors, on every machine and in every run. `asked` keeps
    every text that was sent, so that a test can tell what would have been paid for.
    """

    def __init__(self, dimensions: int = 64, model: str = "words") -> None:
        self.model = model
        self.dimensions = dimensions
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vector:
        self.asked.extend(texts)
        return np.stack([self._vector(text) for text in texts]) if texts else np.zeros((0, self.dimensions), np.float32)

    def embed_query(self, text: str) -> Vector:
        self.asked.append(text)
        return self._vector(text)

    def _vector(self, text: str) -> Vector:
        words = re.findall(r"\w+", text.lower()) or [text]
        total = np.sum([self._word(word) for word in words], axis=0)
        unit: Vector = (total / np.linalg.norm(total)).astype(np.float32)
        return unit

    def _word(self, word: str) -> Vector:
        # crc32, because hash() of a str changes with every process
        generator = np.random.default_rng(zlib.crc32(word.encode("utf-8", "surrogatepass")))
        return generator.standard_normal(self.dimensions).astype(np.float32)


class SettableClock:
    """Stands still until a test moves it."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, *, days: float = 0, hours: float = 0, seconds: float = 0) -> None:
        self.now += timedelta(days=days, hours=hours, seconds=seconds)
