"""Files that are there whole or not at all, and names that no session id can break out of."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path

from rlm_memory.checkpoints.errors import CheckpointWriteError

TEMPORARY = ".tmp-"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a crash at any moment leaves the old one or the new one, readable by its owner alone.

    Raises:
        CheckpointWriteError: the disk refused; the file that was there before is untouched.
    """
    try:
        temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)
    except (OSError, ValueError) as error:  # ValueError: no file can have such a name
        raise CheckpointWriteError(
            f"{str(path)!r} was not written: {error}. What was saved before is intact."
        ) from error


def sync_directory(path: Path) -> None:
    """Make the names in a folder survive a loss of power, where the system can do that."""
    if os.name == "nt":  # Windows has no handle of a folder to sync
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a folder, and those above it, for the owner alone.

    Raises:
        CheckpointWriteError: the disk refused.
    """
    try:
        for folder in (*reversed(path.parents), path):  # mkdir gives its mode to the last of new folders alone
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CheckpointWriteError(f"The folder {path} cannot be made: {error}.") from error


def sweep_temporaries(path: Path) -> int:
    """Remove what a killed writer left behind, and return how many files that were; call it under the lock."""
    stale = [each for each in path.glob(f"{TEMPORARY}*") if each.is_file()]
    for each in stale:
        each.unlink(missing_ok=True)
    return len(stale)


def directory_name(session_id: str) -> str:
    """Return the name of a session's folder: readable, the same each time, another for each id.

    >>> directory_name("../../etc").startswith("etc-")
    True
    """
    readable = _UNSAFE.sub("-", session_id).strip("-")[:40] or "session"
    return f"{readable}-{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
