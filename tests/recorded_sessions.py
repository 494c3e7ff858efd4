"""What tests read of a session with checkpoints that handlers have recorded."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from rlm_memory.checkpoints import CheckpointStore, RLMSession


def told(session: RLMSession) -> list[str]:
    """Return the trajectory in short: the kind, the name and the status of each event."""
    return [
        " ".join(str(event[part]) for part in ("type", "name", "status") if part in event)
        for event in session.trajectory_events
    ]


def reasons(store: CheckpointStore) -> list[Any]:
    """Return why each checkpoint of the session `s` was taken."""
    return [store.get(info.checkpoint_id).metadata["reason"] for info in store.list("s")]


def written(folder: Path) -> bytes:
    """Return all that is in the files below a folder, those in zip files unpacked."""
    parts = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        parts.append(path.read_bytes())
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                parts += [file.read(name) for name in file.namelist()]
    return b"\n".join(parts)
