"""From what a caller writes for `embedder` to an embedder."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

from rlm_memory.embedding.checks import checked
from rlm_memory.embedding.local import Model2VecEmbedder, WordLlamaEmbedder
from rlm_memory.embedding.remote import DEFAULT_MODEL, OpenAIEmbedder
from rlm_memory.errors import InvalidInputError
from rlm_memory.ports import Embedder, Vector

_KNOWN = '"openai:MODEL", "model2vec:NAME_OR_PATH", "wordllama", None, or an object with embed() and embed_query()'


def resolve_embedder(spec: object) -> Embedder | None:
    """Return the embedder that a specification stands for; None for None. Loads and sends nothing.

    Args:
        spec: `"openai:MODEL"` (`"openai"` for text-embedding-3-small), `"model2vec:NAME_OR_PATH"`, `"wordllama"`, None,
            or an object with `embed(texts)` and `embed_query(text)`. An object without `model` is the unnamed model
            `""`; without `dimensions`, they are learned from its first vectors.

    Raises:
        InvalidInputError: It is none of these; the message lists what is known.

    >>> resolve_embedder("openai")
    OpenAIEmbedder('text-embedding-3-small', dimensions=1536)
    """
    match spec:
        case None:
            return None
        case str():
            return _named(spec)
        case _ if _is_complete(spec):
            return cast("Embedder", spec)
        case _:
            _expect_embedder(spec)
            return CompletedEmbedder(spec)


def embedder_model(spec: object) -> str | None:
    """Return the name a store remembers for `resolve_embedder(spec)`, `""` if it has none; loads and sends nothing.

    >>> embedder_model("openai"), embedder_model(None)
    ('openai:text-embedding-3-small', None)
    """
    embedder = resolve_embedder(spec)
    return None if embedder is None else embedder.model


class CompletedEmbedder:
    """Gives an object with `embed` and `embed_query` the model's name and the number of dimensions it does not tell."""

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder
        self._dimensions: int | None = None

    def __repr__(self) -> str:
        return f"CompletedEmbedder({self._embedder!r})"

    def __getattr__(self, name: str) -> Any:  # what else it can do, awaiting for example, it still can
        if name.startswith("_"):  # also keeps copy and pickle, which ask before __init__ has run, from going in circles
            raise AttributeError(name)
        return getattr(self._embedder, name)

    @property
    def model(self) -> str:
        """The object's own name for its model, else `""`."""
        model = getattr(self._embedder, "model", None)
        return model if isinstance(model, str) else ""

    @property
    def dimensions(self) -> int:
        """The length of each vector; the first use embeds a word where the object does not tell."""
        if self._dimensions is None:
            told = getattr(self._embedder, "dimensions", None)
            self._dimensions = told if isinstance(told, int) else len(self.embed_query("dimensions"))
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one vector a text, in order: shape (len(texts), dimensions), float32.

        Raises:
            EmbeddingRequestError: What the object returned does not pass `checked`.
        """
        vectors = checked(self._embedder.embed(texts), len(texts), self._dimensions)
        if len(texts):
            self._dimensions = vectors.shape[1]
        return vectors

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question: shape (dimensions,), float32. Raises what `embed` raises."""
        vector: Vector = checked([self._embedder.embed_query(text)], 1, self._dimensions)[0]
        self._dimensions = len(vector)
        return vector


def _named(spec: str) -> Embedder:
    kind, separator, name = spec.partition(":")
    match kind, separator, name:
        case "openai", _, _:
            return OpenAIEmbedder(name or DEFAULT_MODEL)
        case "model2vec", ":", _:
            return Model2VecEmbedder(name)
        case "wordllama", "", _:
            return WordLlamaEmbedder()
        case _:
            raise InvalidInputError(f"Unknown embedder {spec!r}. Known are {_KNOWN}.")


def _expect_embedder(spec: object) -> None:
    kind = type(spec).__name__
    if isinstance(spec, type):
        raise InvalidInputError(f"{spec.__name__} is a class: pass an object of it, {spec.__name__}(…).")
    for framework, package, method in (
        ("LangChain", "langchain_rlm", "embed_documents"),
        ("LlamaIndex", "llamaindex_rlm", "get_text_embedding_batch"),
    ):
        if _has(spec, method):
            raise InvalidInputError(f"{kind} is a {framework} embedder: pass {package}.as_embedder({kind}(…)).")
    if not _has(spec, "embed", "embed_query"):
        raise InvalidInputError(f"{kind} is no embedder. Known are {_KNOWN}.")


def _is_complete(spec: object) -> bool:
    if isinstance(spec, type) or not _has(spec, "embed", "embed_query", "model", "dimensions"):
        return False
    return isinstance(getattr(spec, "model"), str)  # noqa: B009 - mypy knows no such attribute of an object


def _has(spec: object, *names: str) -> bool:
    # without running properties: to tell its dimensions, an embedder may load a model or ask a server
    return all(inspect.getattr_static(spec, name, None) is not None for name in names)
