"""What keeps a command that fails from leaving an empty store behind: nothing has to be deleted that others may use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

from rlm_memory.embedding import resolve_embedder
from rlm_memory.location import default_location
from rlm_memory.ports import Embedder, Vector


class EmbeddedAhead:
    """An embedder whose first vectors are there before the store is that they are for; those texts are sent once."""

    def __init__(self, name: str, texts: Sequence[str]) -> None:
        """Embed these texts.

        Raises:
            EmbeddingError: Their vectors could not be had.
            InvalidInputError: There is no such embedder, or it cannot read a text.
            MissingExtraError: It is not installed.
        """
        self._embedder = cast("Embedder", resolve_embedder(name))
        self._vectors: dict[str, Vector] = {}
        self._vectors = self._with(texts)

    @property
    def model(self) -> str:
        """The name that the store remembers."""
        return self._embedder.model

    @property
    def dimensions(self) -> int:
        """The length of each vector."""
        return self._embedder.dimensions

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one vector a text, in order: shape (len(texts), dimensions), float32; raises what the other does."""
        vectors = self._with(texts)
        return np.array([vectors[text] for text in texts], np.float32).reshape(len(texts), self.dimensions)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question: shape (dimensions,), float32; raises what the other does."""
        return self._embedder.embed_query(text)

    def _with(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Return the vectors that are there and those of these texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        return {**self._vectors, **dict(zip(new, self._embedder.embed(new) if new else (), strict=True))}


def new_file(location: str | None) -> Path | None:
    """Return the file that opening a store at this place would make; None where there is one, or none can be made."""
    place = default_location() if location is None else location
    if not place or "\0" in place or "://" in place or place == ":memory:":
        return None
    file = Path(os.path.abspath(place))
    # SQLite takes away what is left beside a file that is empty, and would read it as the log of one that is not
    left = (file.with_name(file.name + beside) for beside in ("", "-wal", "-shm", "-journal"))
    if any(map(os.path.lexists, left)) or not os.access(file.parent, os.W_OK):
        return None
    return file


def named(made: Path, file: Path) -> bool:
    """Give a store that was made aside its name, and tell whether that could be: not where a file has it already."""
    try:
        os.link(made, file)
    except OSError:  # somebody else was faster, or files have one name alone on this disk
        return False
    return True
