"""A namespace as a file of JSON lines: a header, a line for each part, and an end that tells whether all is there.

Version 2 has all that a namespace holds. Version 1 had nodes and messages, no end, and may be written by hand.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import closing
from os import PathLike
from typing import IO, Any, Final

from rlm_memory.errors import EmbeddingMismatchError, InvalidInputError
from rlm_memory.interchange.intake import Intake, NoteNew
from rlm_memory.interchange.lines import NodePart, encoded, line_of, part_of
from rlm_memory.interchange.stream import parts_of
from rlm_memory.ports import Engine, Progress
from rlm_memory.records import Message

FORMAT: Final = "rlm-memory nodes"
VERSION: Final = 2

_TOLD: Final = 500
_LONGEST_LINE: Final = 256 << 20


def write(engine: Engine, path: str | PathLike[str], *, namespace: str, progress: Progress | None = None) -> int:
    """Write the engine's namespace to a new file, of one state of the store, or nothing; return how many nodes.

    Raises:
        InvalidInputError: There is a file already.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise InvalidInputError(f"{os.fspath(path)} exists already; choose another path for the export.") from error
    try:
        with open(descriptor, "wb") as file:
            return _write(engine, file, namespace, progress)
    except BaseException:
        os.unlink(path)
        raise


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
        InvalidInputError: A line cannot be read, or would not be sound here; nothing was written.
        EmbeddingMismatchError: The store has vectors of another model or length.
    """
    with open(path, "rb") as file, engine.transaction():
        lines = Lines(file)
        header = next(lines.documents(), None)
        version, origin, model, dimensions = _header(header, namespace)
        _adopt(engine, os.fspath(path), model, dimensions)
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


class Lines:
    """The lines of a file, one at a time: `number` and `size` are those of the last one, `read` is the bytes so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hashed = hashlib.sha256()
        self._last = b""  # not hashed yet: it may be the end, which tells of those before it
        self._ended = False
        self.number = 0
        self.size = 0
        self.read = 0

    def documents(self) -> Iterator[Any]:
        """Yield what JSON makes of each line from here on.

        Raises:
            InvalidInputError: A line is not JSON.
        """
        while line := self._file.readline(_LONGEST_LINE):
            self.number += 1
            self._hashed.update(self._last)
            self._last = line
            if self._ended:
                raise InvalidInputError(f"Line {self.number} comes after the end.")
            self.size = len(line)
            self.read += len(line)
            try:
                document = json.loads(line.decode(), parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as error:
                raise InvalidInputError(f"Line {self.number} is not JSON: {error}") from error
            yield document

    def expect_end(self, told: Any, name: str) -> None:
        """Refuse a file whose lines before this one are not those it was written with; nothing may follow."""
        ours = {"lines": self.number - 1, "sha256": self._hashed.hexdigest()}
        if told != ours:
            raise InvalidInputError(
                f"{name} tells the end of another file: lines were changed, lost or added since it was written."
            )
        self._ended = True


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _header(header: Any, namespace: str) -> tuple[int, str, str, int | None]:
    """Return version, namespace, model and dimensions of a file."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InvalidInputError(f"Line 1 is not the header of an export; expected {{'format': {FORMAT!r}, ...}}.")
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


def _adopt(engine: Engine, path: str, model: str, dimensions: int | None) -> None:
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
