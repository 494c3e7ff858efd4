"""Where a store is when the caller does not say."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from rlm_memory.errors import StoreError

VARIABLE: Final = "RLM_MEMORY_DB"


def default_location() -> str:
    """Return the value of RLM_MEMORY_DB, else `rlm-memory/memory.db` in the user's data folder, which is created.

    Raises:
        StoreError: There is no such folder, and none can be made.
    """
    if named := os.environ.get(VARIABLE):
        return named
    try:
        folder = _data_folder() / "rlm-memory"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # a RuntimeError: the user has no home
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        raise StoreError(
            f"There is no place for the store: {reason}. Name a file, in the call or with the variable {VARIABLE}."
        ) from error
    return str(folder / "memory.db")


def _data_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
