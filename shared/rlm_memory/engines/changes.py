"""A change of the embedding model, as the meta of a store tells of it. Both engines keep it there under these keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlm_memory.errors import EmbeddingMismatchError
from rlm_memory.ports import NewModel

_MODEL: Final = "new_model"
_DIMENSIONS: Final = "new_dimensions"
KEYS: Final = (_MODEL, _DIMENSIONS)


def rows_of_change(new: NewModel) -> list[tuple[str, str]]:
    """Return the (key, value) that tell of a change to this model while it is under way."""
    return [(_MODEL, new.model), (_DIMENSIONS, str(new.dimensions))]


def is_under_way(meta: Mapping[str, str], new: NewModel) -> bool:
    """Return whether a change to this model has begun and is not finished."""
    return rows_of_change(new) == [(key, meta.get(key)) for key in KEYS]


def is_finished(meta: Mapping[str, str], new: NewModel, location: str) -> bool:
    """Return whether somebody else has finished the change to this model that had begun; False while it is under way.

    Raises:
        EmbeddingMismatchError: Somebody else has begun, or finished, a change to another model.
    """
    if is_under_way(meta, new):
        return False
    begun = meta.get(_MODEL)
    if begun is None and (meta.get("embedding_model"), meta.get("dimensions")) == (new.model, str(new.dimensions)):
        return True
    doing = "has finished one" if begun is None else f"has begun one to {begun!r}"
    raise EmbeddingMismatchError(
        f"{location}: the change to {new.model!r} ({new.dimensions} dimensions) cannot go on, somebody else {doing} "
        "meanwhile."
    )
