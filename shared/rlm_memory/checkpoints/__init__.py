"""Checkpoints of an RLM session: every variable comes back exactly, or is reported by name and reason.

`RLMSession` runs, `CheckpointStore` keeps, `RLMCheckpoint` is the state at one moment; `dumps` and `loads` turn any one
value into bytes and back. A file is data: no code in it runs, unless it is signed with the key that its reader trusts.
"""

from rlm_memory.checkpoints.checkpoint import Diff, RLMCheckpoint
from rlm_memory.checkpoints.container import Limits
from rlm_memory.checkpoints.errors import (
    CheckpointBusyError,
    CheckpointDamagedError,
    CheckpointLimitError,
    CheckpointNotFoundError,
    CheckpointSignatureError,
    CheckpointVersionError,
    CheckpointWriteError,
    OperationError,
    UnrestoredValueError,
    UnsavableValueError,
)
from rlm_memory.checkpoints.heap import Issue
from rlm_memory.checkpoints.journal import Journal
from rlm_memory.checkpoints.migrations import FORMAT_VERSION, register_migration
from rlm_memory.checkpoints.operations import Operation
from rlm_memory.checkpoints.placeholder import Unrestored
from rlm_memory.checkpoints.recorder import Recorder, recorder_of
from rlm_memory.checkpoints.session import Resumption, RLMSession
from rlm_memory.checkpoints.store import CheckpointInfo, CheckpointStore, Finding
from rlm_memory.checkpoints.usage import Usage, usage_of
from rlm_memory.checkpoints.values import dumps, loads

__all__ = [
    "FORMAT_VERSION",
    "CheckpointBusyError",
    "CheckpointDamagedError",
    "CheckpointInfo",
    "CheckpointLimitError",
    "CheckpointNotFoundError",
    "CheckpointSignatureError",
    "CheckpointStore",
    "CheckpointVersionError",
    "CheckpointWriteError",
    "Diff",
    "Finding",
    "Issue",
    "Journal",
    "Limits",
    "Operation",
    "OperationError",
    "RLMCheckpoint",
    "RLMSession",
    "Recorder",
    "Resumption",
    "Unrestored",
    "UnrestoredValueError",
    "UnsavableValueError",
    "Usage",
    "dumps",
    "loads",
    "recorder_of",
    "register_migration",
    "usage_of",
]
