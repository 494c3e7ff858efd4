"""Files beside a database that a living process owns, by a lock that ends with it: what nobody owns may be deleted."""

from __future__ import annotations

import os
import sys
from io import FileIO
from typing import Final

if sys.platform != "win32":
    import fcntl

_FAR: Final = 1 << 30


def open_private(path: str, flags: int) -> int:
    """Open a file, made readable by its owner alone; an `opener`."""
    return os.open(path, flags, 0o600)


def is_there(file: FileIO) -> bool:
    """Return whether the open file still has its name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(file.name))
    except FileNotFoundError:
        return False


def locked(file: FileIO) -> bool:
    """Lock the file until it is closed; False if another process, or another opening of the file, has it locked."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_FAR)  # locked bytes cannot be read by others there, so these are beyond the content
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(0)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
