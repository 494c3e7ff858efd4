"""A namespace as a file of JSON lines: a header, a line for each part, and an end that tells whether all is there.

Version 2 has all that a namespace holds. Version 1 had nodes and messages, no end, and may be written by hand.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from io import BufferedReader
from os import PathLike
from typing import IO, Any, Final

from rlm_memory.errors import EmbeddingMismatchError, InvalidInputError, StoreFullError
from rlm_memory.interchange.intake import Intake, NoteNew
from rlm_memory.interchange.lines import NodePart, encoded, line_of, part_of
from rlm_memory.interchange.stream import parts_of
from rlm_memory.ports import Engine, Progress
from rlm_memory.records import Message

FORMAT: Final = "rlm-memory nodes"
VERSION: Final = 2

_TOLD: Final = 500
_LONGEST_LINE: Final = 256 << 20
_HEADER: Final = f'{{"format": "{FORMAT}", "version": {VERSION}, ...}}'
_DISK_FAILED: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
_OTHER_FILES: Final[Mapping[bytes, str]] = {
    b"\x1f\x8b": "is compressed by gzip; unpack it first: gunzip -c FILE | rlm-memory import -",
    b"\xfd7zXZ\x00": "is compressed by xz; unpack it first: xz -dc FILE | rlm-memory import -",
    b"BZh": "is compressed by bzip2; unpack it first: bunzip2 -c FILE | rlm-memory import -",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; unpack it first: zstd -dc FILE | rlm-memory import -",
    b"PK\x03\x04": "is a zip archive; unpack it first",
    b"SQLite format 3\x00": "is a database and no export; a store is copied with: rlm-memory copy FROM TO",
    codecs.BOM_UTF16_LE: "is UTF-16, as some shells write what is sent to a file; export again, with the file's name",
    codecs.BOM_UTF16_BE: "is UTF-16, as some shells write what is sent to a file; export again, with the file's name",
}
"""What files begin with that are no lines of JSON, and what is said of them."""


def write(engine: Engine, path: str | PathLike[str], *, namespace: str, progress: Progress | None = None) -> int:
    """Write the engine's namespace to a new file, of one state of the store, or nothing; return how many nodes.

    Raises:
        InvalidInputError: There is a file already, or none can be made there.
        StoreFullError: The disk is full, or fails.
    """
    name = os.fspath(path)
    with _disk_trusted(name):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise InvalidInputError(f"{name} exists already; choose another path for the export.") from error
        except OSError as error:
            if error.errno in _DISK_FAILED:
                raise
            raise InvalidInputError(
                f"{name}: the file cannot be made ({error.strerror}); check that its folder exists and may be written."
            ) from error
        try:
            with open(descriptor, "wb") as file:
                return _write(engine, file, namespace, progress)
        except BaseException:
            os.unlink(path)
            raise


@contextmanager
def _disk_trusted(name: str) -> Iterator[None]:
    """Tell of a disk that fails in the block."""
    try:
        yield
    except StoreFullError:  # that of the store itself
        raise
    except OSError as error:
        if error.errno not in _DISK_FAILED:
            raise
        raise StoreFullError(
            f"{name}: the file could not be read or written ({error.strerror}), and nothing is left of the attempt. "
            "Look at its disk, or choose another."
        ) from error


def _write(engine: Engine, file: IO[bytes], namespace: str, progress: Progress | None) -> int:
    with engine.reading(), closing(parts_of(engine)) as parts:
        identity = engine.identity()
        header = {
            "format": FORMAT, "version": VERSION, "namespace": namespace, "model": identity.model,
            "dimensions": identity.dimensions,
        }  # fmt: skip
        hashed = hashlib.sha256()
        total = 0 if progress is None else engine.parts.count()
        done = nodes = 0

        def put(line: bytes) -> None:
            hashed.update(line)
            file.write(line)

        put(encoded(header))
        for done, part in enumerate(parts, start=1):
            put(line_of(part))
            nodes += isinstance(part, NodePart)
            if progress is not None and done % _TOLD == 0:
                progress(min(done, total), total)
        if progress is not None:
            progress(total, total)
        file.write(encoded({"end": {"lines": done + 1, "sha256": hashed.hexdigest()}}))
        return nodes


def read(
    engine: Engine,
    path: str | PathLike[str],
    *,
    namespace: str,
    now_ms: int,
    note_new: NoteNew,
    history: bool = True,
    progress: Progress | None = None,
) -> int:
    """Take in all of a file, in one transaction; return how many nodes.

    Raises:
        InvalidInputError: There is no such file, or a line cannot be read, or would not be sound here; nothing was
            written.
        EmbeddingMismatchError: The store has vectors of another model or length.
        StoreFullError: The disk fails.
    """
    with _disk_trusted(os.fspath(path)), _opened(path) as file, engine.transaction():
        lines = Lines(file)
        version, origin, model, dimensions = _read_header(lines, os.fspath(path), namespace)
        _take_vectors(engine, os.fspath(path), model, dimensions)
        intake = Intake(
            engine,
            namespace=namespace,
            origin=origin,
            now_ms=now_ms,
            note_new=note_new,
            history=history and version > 1,
        )
        ended = version == 1
        for document in lines.documents():
            name = f"Line {lines.number}"
            if version > 1 and isinstance(document, dict) and document.keys() == {"end"}:
                lines.expect_end(document["end"], name)
                ended = True
                continue
            part = part_of(document, name, namespace=namespace, dimensions=dimensions)
            if version == 1 and not isinstance(part, (NodePart, Message)):
                raise InvalidInputError(f"{name} is of a kind that version 1 of the format does not have.")
            intake.take(part, name, lines.size)
            if progress is not None and lines.number % _TOLD == 0:
                progress(lines.read, os.fstat(file.fileno()).st_size)
        if not ended:
            raise InvalidInputError(f"Line {lines.number} is the last one, and not the end: the file was cut short.")
        intake.finish()
        if progress is not None:
            progress(lines.read, os.fstat(file.fileno()).st_size)
        return intake.nodes


def expect_export(path: str | PathLike[str], *, name: str) -> None:
    """Refuse a file that is none which `read` could read, by its beginning; an error calls it by this name.

    Raises:
        InvalidInputError: It is not there, cannot be read, or does not begin as an export.
    """
    with _opened(path, name) as file:
        _read_header(Lines(file), name, "")


def _opened(path: str | PathLike[str], name: str | None = None) -> BufferedReader:
    """Return a file that is there and may be lines of JSON."""
    name = name or os.fspath(path)
    try:
        file = open(path, "rb")  # noqa: SIM115 - it is the caller's
    except OSError as error:
        if error.errno in _DISK_FAILED:
            raise
        if os.path.isdir(path):
            raise InvalidInputError(f"{name} is a folder; expected a file that export wrote.") from error
        raise InvalidInputError(f"Cannot read {name}: {error.strerror}. Check the name and its folder.") from error
    beginning = file.peek(16)
    for mark, what in _OTHER_FILES.items():
        if beginning.startswith(mark):
            file.close()
            raise InvalidInputError(f"{name} {what}.")
    return file


class Lines:
    """The lines of a file, one at a time: `number` and `size` are those of the last one, `read` is the bytes so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hashed = hashlib.sha256()
        self._last = b""  # not hashed yet: it may be the end, which tells of those before it
        self._ended = False
        self._of_windows = False
        self.number = 0
        self.size = 0
        self.read = 0

    def documents(self) -> Iterator[Any]:
        """Yield what JSON makes of each line from here on; a byte order mark and blank lines at the end are none.

        Raises:
            InvalidInputError: A line is not JSON.
        """
        number = self.number
        while line := self._file.readline(_LONGEST_LINE):
            number += 1
            self.read += len(line)
            if not line.strip():
                continue
            if number > self.number + 1:
                raise InvalidInputError(f"Line {self.number + 1} is blank; only the end of the file may be.")
            self.number = number
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)  # of an editor; no export was written with it
            self._hashed.update(self._last)
            self._last = line
            if self._ended:
                raise InvalidInputError(f"Line {self.number} comes after the end.")
            self.size = len(line)
            self._of_windows = line.endswith(b"\r\n")
            yield self._document(line)

    def _document(self, line: bytes) -> Any:
        try:
            return json.loads(line.decode().rstrip("\r\n"), parse_constant=_refuse_constant)
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                f"Line {self.number} is not UTF-8 text (byte {error.start} of it); convert the file first."
            ) from error
        except json.JSONDecodeError as error:
            raise InvalidInputError(f"Line {self.number} is not JSON: {error.msg}, at column {error.colno}.") from error
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"Line {self.number} is not JSON: {error}.") from error

    def expect_end(self, told: Any, name: str) -> None:
        """Refuse a file whose lines before this one are not those it was written with; nothing may follow."""
        ours = {"lines": self.number - 1, "sha256": self._hashed.hexdigest()}
        if told != ours and self._of_windows:
            raise InvalidInputError(
                f"{name} tells the end of another file: its lines end as those of Windows do, which no export does. "
                "Change them back, or copy the file anew without a conversion of text."
            )
        if told != ours:
            raise InvalidInputError(
                f"{name} tells the end of another file: lines were changed, lost or added since it was written."
            )
        self._ended = True


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _read_header(lines: Lines, name: str, namespace: str) -> tuple[int, str, str, int | None]:
    """Return version, namespace, model and dimensions of a file, told by its first line."""
    try:
        header = next(lines.documents(), None)
    except InvalidInputError as error:
        raise InvalidInputError(f"{name} is no export: {_within(error)}; expected line 1 to be {_HEADER}.") from error
    if header is None and lines.number == 0:
        raise InvalidInputError(f"{name} is empty; expected line 1 to be {_HEADER}.")
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InvalidInputError(f"{name} is no export: line 1 is not its header, {_HEADER}.")
    version = header.get("version")
    if isinstance(version, bool) or version not in (1, VERSION):
        raise InvalidInputError(
            f"The export has version {version!r}, this release reads up to {VERSION}. "
            "Update it with: pip install -U rlm-memory"
        )
    model, dimensions = header.get("model") or "", header.get("dimensions")
    whole = isinstance(dimensions, int) and not isinstance(dimensions, bool) and 0 < dimensions <= 65536
    if not isinstance(model, str) or not (dimensions is None or whole):
        raise InvalidInputError("Line 1: model must be a text, and dimensions a number from 1 to 65536 or null.")
    origin = header.get("namespace", namespace if version == 1 else None)
    if not isinstance(origin, str) or origin.encode("utf-8", "ignore").decode() != origin:
        raise InvalidInputError("Line 1: namespace must be a text of valid Unicode.")
    return int(version), origin, model, dimensions


def _within(error: InvalidInputError) -> str:
    """Return what an error says, to stand within a sentence."""
    said = str(error).rstrip(".")
    return said[:1].lower() + said[1:]


def _take_vectors(engine: Engine, path: str, model: str, dimensions: int | None) -> None:
    """Let a store without vectors have those that come; refuse those of another model or length."""
    if dimensions is None:
        return
    ours = engine.identity()
    if ours.dimensions not in (None, dimensions) or (ours.model and model and ours.model != model):
        raise EmbeddingMismatchError(
            f"{path} has vectors of {model!r} ({dimensions} dimensions), the store has those of "
            f"{ours.model!r} ({ours.dimensions} dimensions). Import it into a new store, then use reembed."
        )
    if ours.dimensions is None or not ours.model:
        engine.adopt(model=ours.model or model, dimensions=dimensions)
