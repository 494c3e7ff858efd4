"""Large values beside the checkpoints of a session: one file a value, named after its bytes."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from rlm_memory.checkpoints.container import Limits, check_blob, shrinks
from rlm_memory.checkpoints.errors import CheckpointDamagedError, CheckpointLimitError
from rlm_memory.checkpoints.files import write_atomically

_NAME = re.compile(r"[0-9a-f]{64}\.[a-z]{1,12}")
_COMPRESSED = ".z"


def write_blob(folder: Path, name: str, content: bytes) -> None:
    """Store a value, unless it is there already and whole.

    Raises:
        CheckpointWriteError: the disk refused.
    """
    if _is_whole(folder, name):
        return
    if shrinks(content):
        write_atomically(folder / (name + _COMPRESSED), zlib.compress(content, 1))
    else:
        write_atomically(folder / name, content)


def read_blob(folder: Path, name: str, limits: Limits | None = None) -> bytes:
    """Return the value with this name, checked.

    Raises:
        CheckpointDamagedError: it is not there, or is not what its name promises.
        CheckpointLimitError: it is larger than the limits allow.
    """
    if not _NAME.fullmatch(name):
        raise CheckpointDamagedError(f"{name[:80]!r} is not the name of a large value.")
    limit = (limits or Limits()).total
    try:
        plain = folder / name
        content = plain.read_bytes() if plain.exists() else _decompressed(folder / (name + _COMPRESSED), limit)
    except FileNotFoundError as error:
        raise CheckpointDamagedError(f"The large value {name} is missing in {folder}.") from error
    except (OSError, zlib.error) as error:
        raise CheckpointDamagedError(f"The large value {name} cannot be read: {error}") from error
    if len(content) > limit:
        raise CheckpointLimitError(f"The large value {name} has more than {limit} bytes.")
    return check_blob(name, content)


def blob_names(folder: Path) -> dict[str, Path]:
    """Return the values that are stored, each with its file."""
    names = {path.name.removesuffix(_COMPRESSED): path for path in folder.iterdir()} if folder.is_dir() else {}
    return {name: path for name, path in names.items() if _NAME.fullmatch(name)}


def _is_whole(folder: Path, name: str) -> bool:
    """Read what is there: a value that went bad is repaired by the next checkpoint that has it."""
    try:
        read_blob(folder, name)
    except (CheckpointDamagedError, CheckpointLimitError):
        return False
    return True


def _decompressed(path: Path, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(path.read_bytes(), limit + 1)
    if not unpacker.eof and len(content) <= limit:
        raise zlib.error("its end is missing")
    return content
