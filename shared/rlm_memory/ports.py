"""What the core asks of the outside: an embedder, a clock, an engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
"""One embedding, shape (dimensions,), or a matrix of them, shape (n, dimensions)."""


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors.

    `model` names the model the same way every time: a store remembers it and refuses another one. An empty name means
    "unknown", and then only the number of dimensions is compared.
    """

    @property
    def model(self) -> str:
        """The model's name, for example `openai:text-embedding-3-small`."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of each vector."""
        ...

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one vector a text, in order: shape (len(texts), dimensions), float32."""
        ...

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question: shape (dimensions,), float32."""
        ...


class Clock(Protocol):
    """Tells the time; tests pass one that they set."""

    def __call__(self) -> datetime:
        """Return the present moment with its time zone."""
        ...


def system_clock() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)
