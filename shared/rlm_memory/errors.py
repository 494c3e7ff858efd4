"""The errors a caller can meet, one tree.

RLMError
├── InvalidInputError (ValueError)         an argument cannot be used; nothing was written
│   ├── InvalidNodeError                   a node of a call, named by its position
│   ├── InvalidFilterError                 a filter, an operator or a value in it
│   └── InvalidQueryError                  alpha, k, a query vector
├── NodeNotFoundError (KeyError)           an id that is not in this namespace
├── EmbeddingError                         the embedder could not give the vectors asked for
│   ├── EmbeddingUnavailableError          there is no embedder, or no key for it
│   └── EmbeddingRequestError              the provider refused or failed; names the items
├── EmbeddingMismatchError                 the store holds vectors of another model or length
├── StoreError                             the database
│   ├── StoreBusyError (TimeoutError)      another process holds the write lock
│   │   └── StoreConflictError             the server has undone a transaction for another one's sake
│   ├── StoreUnavailableError              the server of the store cannot be reached
│   │       (ConnectionError)
│   ├── StoreCorruptError                  the file is damaged, or is not ours
│   ├── StoreVersionError                  the file was written by a newer release
│   ├── StoreFullError (OSError)           no space left, or an I/O error
│   ├── StoreReadOnlyError                 a write through a read-only store
│   └── StoreClosedError                   a call after close()
├── CheckpointError                        see rlm_memory.checkpoints.errors for those below it
├── UnsupportedRuntimeError                see rlm_memory.integrations.rlms: a version of rlms that does not fit
└── MissingExtraError (ImportError)        an optional dependency; prints the pip command
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlm_memory.records import PromotionDecision


class RLMError(Exception):
    """Base of every error that rlm-memory raises on purpose."""


class InvalidInputError(RLMError, ValueError):
    """An argument cannot be used; nothing was written."""


class InvalidNodeError(InvalidInputError):
    """A node of a call cannot be stored; the message names its position and what is wrong."""


class InvalidFilterError(InvalidInputError):
    """A filter has an unknown operator, or a value its operator cannot take."""


class InvalidQueryError(InvalidInputError):
    """A search cannot be run with these arguments."""


class NodeNotFoundError(RLMError, KeyError):
    """No node of this namespace has the id."""

    def __str__(self) -> str:  # KeyError would show the message in quotes
        return str(self.args[0]) if self.args else ""


class EmbeddingError(RLMError):
    """The embedder could not give the vectors that were asked for."""


class EmbeddingUnavailableError(EmbeddingError):
    """There is no embedder, or it has no key."""


class EmbeddingRequestError(EmbeddingError):
    """The provider refused or failed; the message names the items that have no vector, `positions` lists them."""

    def __init__(self, message: str, positions: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.positions = tuple(positions)


class EmbeddingMismatchError(RLMError):
    """The store holds vectors of another model or another length."""


class StoreError(RLMError):
    """The database could not do what was asked.

    A sweep, or the end of a session, is carried out part by part. What was carried out before the part that failed is
    kept: `decisions` are what the call would have returned of it.
    """

    decisions: tuple[PromotionDecision, ...] = ()


class StoreBusyError(StoreError, TimeoutError):
    """Another process held the write lock for longer than the time-out."""


class StoreConflictError(StoreBusyError):
    """Two transactions were in each other's way, and the server has undone this one; nothing of it is kept.

    Calls that are one transaction were made again by then, and undone again.
    """


class StoreUnavailableError(StoreError, ConnectionError):
    """The server of the store cannot be reached, or has dropped the connection; what was under way is not kept."""


class StoreCorruptError(StoreError):
    """The file is damaged, or is not a store of ours."""


class StoreVersionError(StoreError):
    """The file was written by a newer release."""


class StoreFullError(StoreError, OSError):
    """No space is left on the device, or it failed to read or write."""


class StoreReadOnlyError(StoreError):
    """A write was asked of a store that was opened for reading."""


class StoreClosedError(StoreError):
    """The store was used after close()."""


class CheckpointError(RLMError):
    """Base of the errors about checkpoints."""


class MissingExtraError(RLMError, ImportError):
    """An optional dependency is not installed; the message has the pip command."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency. Install it with: pip install 'rlm-memory[{extra}]'")
