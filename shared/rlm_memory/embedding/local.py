"""Vectors from models that run here."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlm_memory.embedding.checks import checked, expect_texts
from rlm_memory.errors import EmbeddingUnavailableError, InvalidInputError, MissingExtraError
from rlm_memory.ports import Vector

_TEXTS_AT_ONCE = 64
_TOKENS_AT_ONCE = 16_384


class Model2VecEmbedder:
    """Vectors from a model2vec model that runs here: static word vectors, thousands of texts a second.

    The model is loaded when it is first needed, from a folder, else from the cache of the Hugging Face hub, else it is
    downloaded there. Texts of any length are read to their end. Thread-safe.

    Args:
        name_or_path: The model's name on the hub, for example `minishlab/potion-base-8M`, or a folder.

    Raises:
        MissingExtraError: On first use, if model2vec is not installed.
        EmbeddingUnavailableError: On first use, if the model cannot be loaded.
    """

    def __init__(self, name_or_path: str | os.PathLike[str]) -> None:
        self._name = os.fspath(name_or_path)
        if not self._name.strip():
            raise InvalidInputError("model2vec needs the name of a model or its folder: model2vec:NAME_OR_PATH")
        # Encoding sets the tokenizer's truncation, and a tokenizer in use by another thread cannot be changed.
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Model2VecEmbedder({self._name!r})"

    @property
    def model(self) -> str:
        """`model2vec:` and the model's name."""
        return f"model2vec:{self._name}"

    @property
    def dimensions(self) -> int:
        """The length of each vector; loads the model."""
        with self._lock:
            return int(self._loaded.dim)

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one vector a text, in order: shape (len(texts), dimensions), float32.

        Raises:
            InvalidInputError: A text is blank or no text.
            EmbeddingRequestError: The model knows no word of a text; the message names it.
        """
        listed = expect_texts(texts)
        with self._lock:
            vectors = self._loaded.encode(listed, max_length=None, use_multiprocessing=False) if listed else []
            return checked(vectors, len(listed), int(self._loaded.dim))

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question: shape (dimensions,), float32; zeros if the model knows no word of it.

        Raises:
            InvalidInputError: It is blank or no text.
        """
        expect_texts([text])
        with self._lock:
            vectors = self._loaded.encode([text], max_length=None, use_multiprocessing=False)
            vector: Vector = checked(vectors, 1, int(self._loaded.dim))[0] if np.any(vectors) else vectors[0]
        return vector

    @cached_property
    def _loaded(self) -> Any:
        try:
            from model2vec import StaticModel
        except ImportError as error:
            raise MissingExtraError(self.model, "local") from error
        try:
            return StaticModel.from_pretrained(self._name, force_download=False)
        except Exception as error:  # the hub, the network and the file formats each raise their own
            raise EmbeddingUnavailableError(
                f"{self.model} could not be loaded: {error}. "
                "Expected a folder with a model2vec model, or the name of one on the Hugging Face hub."
            ) from error


class WordLlamaEmbedder:
    """Vectors of 256 numbers from the WordLlama model, whose weights come with its package: no network, no key.

    Texts of any length are read to their end. Thread-safe.

    Raises:
        MissingExtraError: On first use, if wordllama is not installed.
        EmbeddingUnavailableError: On first use, if the package has come without its weights.
    """

    model = "wordllama"
    dimensions = 256

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "WordLlamaEmbedder()"

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one vector a text, in order: shape (len(texts), 256), float32.

        Raises:
            InvalidInputError: A text is blank or no text.
        """
        listed = expect_texts(texts)
        tokenizer, word_vectors = self._loaded
        vectors = np.empty((len(listed), self.dimensions), np.float32)
        # Their own embed() pads each text to the longest of its batch: one long text among 64 costs gigabytes, and
        # abstracts take four times as long as here.
        for start in range(0, len(listed), _TEXTS_AT_ONCE):
            encodings = tokenizer.encode_batch_fast(listed[start : start + _TEXTS_AT_ONCE], add_special_tokens=False)
            for row, encoding in enumerate(encodings, start):
                vectors[row] = _mean(word_vectors, np.array(encoding.ids))
        return checked(vectors, len(listed), self.dimensions)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question: shape (256,), float32. Raises what `embed` raises."""
        vector: Vector = self.embed([text])[0]
        return vector

    @property
    def _loaded(self) -> tuple[Any, Vector]:
        with self._lock:
            return self._model

    @cached_property
    def _model(self) -> tuple[Any, Vector]:
        with _root_logger_left_alone():
            try:
                import wordllama
            except ImportError as error:
                raise MissingExtraError("wordllama", "offline") from error
        try:
            folder = Path(wordllama.__file__).parent  # without it, and the ban on downloads, load() asks the network
            loaded = wordllama.WordLlama.load(dim=self.dimensions, cache_dir=folder, disable_download=True)
        except FileNotFoundError as error:
            raise EmbeddingUnavailableError(f"wordllama is installed without its weights: {error}") from error
        loaded.tokenizer.no_padding()
        return loaded.tokenizer, loaded.embedding


def _mean(word_vectors: Vector, ids: NDArray[np.int64]) -> Vector:
    # of a whole book at once, the rows to be added up would take a kilobyte a token
    starts = range(0, len(ids), _TOKENS_AT_ONCE)
    parts = [word_vectors[ids[start : start + _TOKENS_AT_ONCE]].sum(axis=0) for start in starts]
    mean: Vector = np.sum(parts, axis=0) / max(len(ids), 1)
    return mean


@contextmanager
def _root_logger_left_alone() -> Iterator[None]:
    """Keep a package from configuring the program's logging on import: basicConfig does nothing where a handler is."""
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
