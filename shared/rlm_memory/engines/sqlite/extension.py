"""The sqlite-vec extension, loaded so that it cannot meet another SQLite library in the same process.

SQLite opens extensions with RTLD_GLOBAL, and the Linux build of vec0 exports about a hundred symbols, its pointer to
the host's API among them. When a second SQLite library of the process (Python's own, pysqlite3) loads vec0 too, the
dynamic linker binds the second copy to the first one's symbols, hence to the wrong SQLite, and the process dies.
Loading a private copy whose symbols are hidden, all but the entry point, keeps the two apart in both orders.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import apsw

from rlm_memory.errors import StoreError

_ENTRY_POINT = "sqlite3_vec_init"
_SHT_DYNSYM = 11
_STV_HIDDEN = 2


_copy: tuple[str, os.stat_result] | None = None
"""The path of this process's own copy of the extension, and what is there."""


def load_vec0(connection: apsw.Connection) -> None:
    """Make the vec0 virtual table known to this connection.

    Raises:
        StoreError: sqlite-vec is not installed, or holds no library that runs here.
    """
    try:
        connection.enable_load_extension(True)
        try:
            connection.load_extension(_private_copy(), _ENTRY_POINT)
        finally:
            connection.enable_load_extension(False)
    except (ImportError, AttributeError, OSError, apsw.ExtensionLoadingError) as error:
        raise StoreError(
            f"sqlite-vec cannot be loaded on {sys.platform} ({platform.machine()}): {error}. Install its release for "
            "this system with: pip install --force-reinstall 'sqlite-vec>=0.1.9,<0.2' (there is one for Linux with "
            "glibc, for macOS, and for Windows on x86-64)."
        ) from error


def _private_copy() -> str:
    """Return the path of this process's own copy of the extension; it is gone when the process ends."""
    global _copy  # without a lock, which a fork could leave held: at worst, two threads make a copy each
    # A program that becomes a daemon closes every file, and the number may be that of another one by now.
    if (copy := _copy) is None or not _is_still_there(*copy):
        path = _copied(_library())
        _copy = copy = path, os.stat(path)
    return copy[0]


def _is_still_there(path: str, then: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), then)
    except OSError:
        return False


def _library() -> Path:
    import sqlite_vec  # here, so that a missing one is told by load_vec0

    path = Path(sqlite_vec.loadable_path())
    found = [path] if path.exists() else sorted(path.parent.glob(path.name + ".*"))
    if not found:
        raise FileNotFoundError(f"there is no library at {path}")
    return found[0]


def _copied(library: Path) -> str:
    if sys.platform == "linux":
        image = hide_symbols(library.read_bytes(), keep=_ENTRY_POINT)
        with contextlib.suppress(OSError):  # a kernel, or a sandbox, that has no such files
            descriptor = os.memfd_create("vec0")  # a file without a name: nothing to clean up, nothing to tamper with
            os.write(descriptor, image)
            return f"/proc/self/fd/{descriptor}"
    else:
        image = library.read_bytes()
    folder = tempfile.mkdtemp(prefix="rlm-memory-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = Path(folder, library.name)
    copy.write_bytes(image)
    return str(copy)


def hide_symbols(library: bytes, *, keep: str) -> bytes:
    """Return a 64-bit little-endian ELF library in which every defined dynamic symbol but `keep` is hidden.

    Anything else (another word size, another format) comes back unchanged. One byte a symbol is written: `st_other`
    of its entry in `.dynsym`; see the System V gABI, chapter "Symbol Table".
    """
    if library[:6] != b"\x7fELF\x02\x01":
        return library
    image = bytearray(library)
    (sections_at,) = struct.unpack_from("<Q", image, 0x28)
    section_size, section_count = struct.unpack_from("<HH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, sections_at + i * section_size) for i in range(section_count)]
    for _, kind, _, _, offset, size, link, _, _, entry_size in headers:
        if kind != _SHT_DYNSYM:
            continue
        names_at = headers[link][4]
        for entry in range(offset, offset + size, entry_size):
            name_at, _info, _other, section = struct.unpack_from("<IBBH", image, entry)
            start = names_at + name_at
            name = image[start : image.index(0, start)].decode("ascii")
            if section and name != keep:
                image[entry + 5] = _STV_HIDDEN
    return bytes(image)
