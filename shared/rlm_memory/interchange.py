"""A namespace as a file of JSON lines: a header, its nodes, the messages of its conversations.

A line is a node with its vector and the history of its use, or `{"message": …}`, in the order of the conversation.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from os import PathLike
from typing import IO, Any, Final, TypeAlias

import numpy as np

from rlm_memory.embedding import checked
from rlm_memory.errors import EmbeddingError, EmbeddingMismatchError, InvalidInputError
from rlm_memory.ports import Engine, Progress, Scope, Vector
from rlm_memory.records import MESSAGE_STATUSES, Message, Node
from rlm_memory.validation import checked_json, checked_key, checked_node

FORMAT: Final = "rlm-memory nodes"
VERSION: Final = 1
Put: TypeAlias = Callable[[Sequence[tuple[Node, Vector | None]]], object]
"""Stores nodes, each with its vector, in the transaction under way."""

_BATCH: Final = 500
_LONGEST_LINE: Final = 256 << 20

_TEXTS: Final = ("text", "id", "type", "subtype", "tier", "provenance")
_TIMES: Final = ("created_at", "updated_at", "last_accessed")


def write(engine: Engine, path: str | PathLike[str], progress: Progress | None = None) -> int:
    """Write the engine's namespace to a new file, of one state of the store, or nothing; return how many nodes.

    Raises:
        InvalidInputError: There is a file already.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise InvalidInputError(f"{os.fspath(path)} exists already; choose another path for the export.") from error
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            return _write(engine, file, progress)
    except BaseException:
        os.unlink(path)
        raise


def _write(engine: Engine, file: IO[str], progress: Progress | None) -> int:
    with engine.reading():
        identity = engine.identity()
        header = {
            "format": FORMAT, "version": VERSION, "model": identity.model, "dimensions": identity.dimensions,
        }  # fmt: skip
        _write_line(file, header)
        count, after = 0, None
        total = 0 if progress is None else engine.count(Scope())
        while nodes := engine.select(Scope(), limit=_BATCH, after=after):
            after = nodes[-1].id
            for node, vector in zip(nodes, engine.vectors_of([node.id for node in nodes]), strict=True):
                _write_line(file, _line_of(node, vector))
            count += len(nodes)
            if progress is not None:
                progress(count, total)
        for key in engine.messages.keys():  # noqa: SIM118 - no dict
            for message in engine.messages.select(key, status=None, limit=None, offset=0):
                _write_line(file, {"message": _fields_of(message)})
        return count


def _write_line(file: IO[str], value: dict[str, Any]) -> None:
    file.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def _fields_of(message: Message) -> dict[str, Any]:
    return {
        "key": message.key, "status": message.status, "created_at": message.created_at.isoformat(),
        "content": message.content,
    }  # fmt: skip


def _line_of(node: Node, vector: Vector | None) -> dict[str, Any]:
    line: dict[str, Any] = {name: getattr(node, name) for name in _TEXTS}
    line |= {"confidence": node.confidence, "metadata": dict(node.metadata)}
    line |= {name: value.isoformat() for name in _TIMES if (value := getattr(node, name)) is not None}
    line |= {"access_count": node.access_count, "pinned": node.pinned}
    if vector is not None:
        line["vector"] = base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return line


def read(
    engine: Engine, path: str | PathLike[str], *, namespace: str, put: Put, progress: Progress | None = None
) -> int:
    """Hand every node of the file to `put` and keep its messages, all in one transaction; return how many nodes.

    Raises:
        InvalidInputError: A line cannot be read; nothing was written.
        EmbeddingMismatchError: The store has vectors of another model or length.
    """
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file, engine.transaction():
        lines = _lines(file)
        _, header = next(lines, (1, None))
        model, dimensions = _identity_in(header)
        ours = engine.identity()
        if dimensions is not None:
            if ours.dimensions not in (None, dimensions) or (ours.model and model and ours.model != model):
                raise EmbeddingMismatchError(
                    f"{os.fspath(path)} has vectors of {model!r} ({dimensions} dimensions), the store has those of "
                    f"{ours.model!r} ({ours.dimensions} dimensions). Import it into a new store, then use reembed."
                )
            engine.adopt(model=ours.model or model, dimensions=dimensions)
        count = 0
        batch: dict[str, tuple[Node, Vector | None]] = {}
        keys: set[str] = set()
        for number, line in lines:
            if isinstance(line, dict) and line.keys() == {"message"}:
                message = _message_of(line["message"], f"Line {number}")
                if message.key not in keys:
                    keys.add(message.key)
                    engine.messages.delete_all(key=message.key)
                engine.messages.insert([message])
                continue
            node, vector = _node_of(line, number, namespace, dimensions)
            batch[node.id] = node, vector
            count += 1
            if len(batch) == _BATCH:
                put(list(batch.values()))
                batch = {}
                if progress is not None:
                    _tell(progress, file)
        if batch:
            put(list(batch.values()))
        if progress is not None:
            _tell(progress, file)
        return count


def _tell(progress: Progress, file: IO[str]) -> None:
    """Tell how many bytes are read: how many lines there are is not known before the last one."""
    descriptor = file.fileno()
    progress(os.lseek(descriptor, 0, os.SEEK_CUR), os.fstat(descriptor).st_size)


def _lines(file: IO[str]) -> Iterator[tuple[int, Any]]:
    number = 0
    while line := file.readline(_LONGEST_LINE):
        number += 1
        try:
            yield number, json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"Line {number} is not JSON: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _identity_in(header: Any) -> tuple[str, int | None]:
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InvalidInputError(f"Line 1 is not the header of an export; expected {{'format': {FORMAT!r}, ...}}.")
    if header.get("version") != VERSION:
        raise InvalidInputError(
            f"The export has version {header.get('version')!r}, this release reads {VERSION}. "
            "Update it with: pip install -U rlm-memory"
        )
    model, dimensions = header.get("model") or "", header.get("dimensions")
    whole = isinstance(dimensions, int) and not isinstance(dimensions, bool) and 0 < dimensions <= 65536
    if not isinstance(model, str) or not (dimensions is None or whole):
        raise InvalidInputError("Line 1: model must be a text, and dimensions a number from 1 to 65536 or null.")
    return model, dimensions


def _node_of(line: Any, number: int, namespace: str, dimensions: int | None) -> tuple[Node, Vector | None]:
    name = f"Line {number}"
    if not isinstance(line, dict):
        raise InvalidInputError(f"{name} is not an object.")
    known = {*_TEXTS, *_TIMES, "confidence", "metadata", "access_count", "pinned", "vector"}
    if unknown := line.keys() - known:
        raise InvalidInputError(f"{name} has unknown fields: {', '.join(sorted(unknown))}.")
    if "text" not in line:
        raise InvalidInputError(f"{name} has no text.")
    encoded = line.pop("vector", None)
    times: dict[str, Any] = {field: _time(line.pop(field), f"{name}: {field}") for field in _TIMES if field in line}
    count, pinned = line.pop("access_count", 0), line.pop("pinned", False)
    if (
        not isinstance(pinned, bool)
        or isinstance(count, bool)
        or not isinstance(count, int)
        or not 0 <= count < 1 << 62
    ):
        raise InvalidInputError(f"{name}: access_count must be a whole number of 0 or more, pinned true or false.")
    try:
        node = checked_node(Node(**line, **times, access_count=count, pinned=pinned, namespace=namespace), name)
    except TypeError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    return node, None if encoded is None else _vector(encoded, dimensions, name)


def _message_of(fields: Any, name: str) -> Message:
    if not isinstance(fields, dict) or fields.keys() != {"key", "status", "created_at", "content"}:
        raise InvalidInputError(f"{name}: a message has key, status, created_at and content, and nothing else.")
    if fields["status"] not in MESSAGE_STATUSES:
        raise InvalidInputError(f"{name}: unknown status {fields['status']!r}.")
    try:
        key, content = checked_key(fields["key"]), checked_json(fields["content"], "content")
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    at = _time(fields["created_at"], f"{name}: created_at")
    return Message(id=0, key=key, content=content, status=fields["status"], created_at=at)


def _time(value: Any, name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (OverflowError, TypeError, ValueError):
        pass
    raise InvalidInputError(f"{name} is {value!r}; expected an ISO 8601 time with its zone, in the years 1 to 9999.")


def _vector(encoded: Any, dimensions: int | None, name: str) -> Vector:
    if dimensions is None:
        raise InvalidInputError(f"{name} has a vector, but line 1 tells no dimensions.")
    try:
        stored = base64.b64decode(encoded, validate=True)
        vectors = checked([np.frombuffer(stored, dtype="<f4")], 1, dimensions)
    except (TypeError, ValueError, binascii.Error, EmbeddingError) as error:
        raise InvalidInputError(f"{name}: its vector is not {dimensions} numbers in base64: {error}") from error
    row: Vector = vectors[0]
    return row
