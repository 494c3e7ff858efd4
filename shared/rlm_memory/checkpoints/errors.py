"""The errors of checkpoints; they all derive from `rlm_memory.errors.CheckpointError`.

CheckpointError
├── CheckpointDamagedError            the bytes are not the ones that were written, or are no checkpoint
├── CheckpointVersionError            another major version, and no migration leads here
├── CheckpointSignatureError          the signature does not fit the key
├── CheckpointLimitError              larger than the limits that the reader set
├── CheckpointNotFoundError (LookupError)
├── CheckpointWriteError (OSError)    nothing was replaced; the checkpoint before is intact
├── CheckpointBusyError (TimeoutError)  another process holds the session
├── UnsavableValueError               a value cannot be saved and the policy is "raise"
├── UnrestoredValueError (AttributeError)  a value that could not be restored was used
└── OperationError (ValueError)       an operation that is not there, or is finished already
"""

from __future__ import annotations

from rlm_memory.errors import CheckpointError


class CheckpointDamagedError(CheckpointError):
    """The bytes are not the ones that were written, or never were a checkpoint."""


class CheckpointVersionError(CheckpointError):
    """The file has another major version, and no registered migration leads to this one."""


class CheckpointSignatureError(CheckpointError):
    """The file is signed, but not with this key, or was changed after it was signed."""


class CheckpointLimitError(CheckpointError):
    """The file would need more memory than its reader allows."""


class CheckpointNotFoundError(CheckpointError, LookupError):
    """There is no such checkpoint, or no such session."""


class CheckpointWriteError(CheckpointError, OSError):
    """The disk refused the write; what was saved before is intact."""


class CheckpointBusyError(CheckpointError, TimeoutError):
    """Another process held the lock of the session for longer than the time-out."""


class UnsavableValueError(CheckpointError):
    """A value cannot be saved and the policy is "raise"; nothing was written."""


class UnrestoredValueError(CheckpointError, AttributeError):
    """A value that could not be restored was used.

    It is an AttributeError so that `hasattr`, `copy` and debuggers can look at a placeholder without falling over it.
    """


class OperationError(CheckpointError, ValueError):
    """There is no such operation, or it is finished already."""
