"""Parts of a namespace as JSON lines, and back: what a line may hold, checked before anything is made of it. Pure.

A node is its fields; all else is one object under the name of its kind. Bytes are base64, times are milliseconds since
1970-01-01 UTC, but those of nodes and messages, which are ISO 8601.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from rlm_memory.embedding import checked
from rlm_memory.errors import EmbeddingError, InvalidInputError
from rlm_memory.parts import (
    AccessPart,
    CheckpointPart,
    ChunkPart,
    EdgePart,
    ForgottenPart,
    KeyValuePart,
    OutcomePart,
    Part,
    SessionPart,
    ThreadPart,
    UsePart,
    ValuePart,
    WritePart,
)
from rlm_memory.ports import Vector
from rlm_memory.records import MESSAGE_STATUSES, TIERS, Condition, LogEntry, Message, Node, PromotionDecision, Version
from rlm_memory.times import milliseconds, moment
from rlm_memory.validation import checked_json, checked_key, checked_node

_TEXTS: Final = ("text", "id", "type", "subtype", "tier", "provenance")
_TIMES: Final = ("created_at", "updated_at", "last_accessed")
_HISTORY: Final = ("tier_since", "faded_at")

_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
_MOST: Final = 1 << 62
_DEEPEST_JSON: Final = 1000
"""As deep as SQLite reads it."""
_DEEPEST_TREE: Final = 8


class NodePart(NamedTuple):
    """A node with its vector, and the milliseconds since which it is in its tier, up to which it has faded."""

    node: Node
    vector: Vector | None
    tier_since: int | None
    faded_at: int | None


class SweepPart(NamedTuple):
    """When the namespace was swept last."""

    at: int


Moved: TypeAlias = NodePart | SweepPart | LogEntry | Message | Part


# -- out --------------------------------------------------------------------------------------------------------------


def line_of(part: Moved) -> bytes:
    """Return a part as a line, with its end."""
    return encoded(_document_of(part))


def encoded(document: Mapping[str, Any]) -> bytes:
    """Return an object as a line, with its end."""
    return _encode(document).encode() + b"\n"


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _document_of(part: Moved) -> dict[str, Any]:
    match part:
        case NodePart():
            return _node_document(part)
        case LogEntry():
            return {"log": {"sequence": part.sequence, **_decision_document(part.decision),
                            "previous_hash": part.previous_hash, "hash": part.hash}}  # fmt: skip
        case Message():
            return {"message": {
                "key": part.key, "status": part.status, "created_at": part.created_at.isoformat(),
                "content": part.content,
            }}  # fmt: skip
        case _:
            return {_NAMES[type(part)]: _fields_of(part)}


def _fields_of(part: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in zip(part._fields, part, strict=True)}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [_fields_of(each) for each in value]
    return value


def _node_document(part: NodePart) -> dict[str, Any]:
    node = part.node
    line: dict[str, Any] = {name: getattr(node, name) for name in _TEXTS}
    line |= {"confidence": node.confidence, "metadata": dict(node.metadata)}
    line |= {name: value.isoformat() for name in _TIMES if (value := getattr(node, name)) is not None}
    line |= {"access_count": node.access_count, "pinned": node.pinned}
    line |= {
        name: moment(value).isoformat()
        for name, value in zip(_HISTORY, (part.tier_since, part.faded_at), strict=True)
        if value is not None
    }
    if part.vector is not None:
        line["vector"] = _plain(part.vector.astype("<f4").tobytes())
    return line


def _decision_document(made: PromotionDecision) -> dict[str, Any]:
    assert made.at is not None  # it was logged
    return {
        "node_id": made.node_id, "from_tier": made.from_tier, "to_tier": made.to_tier, "rule": made.rule,
        "moved": made.moved, "actor": made.actor, "reason": made.reason,
        "conditions": [[each.name, each.found, each.required, each.holds] for each in made.conditions],
        "session_id": made.session_id, "at": milliseconds(made.at),
    }  # fmt: skip


# -- in ---------------------------------------------------------------------------------------------------------------


def part_of(line: Any, name: str, *, namespace: str, dimensions: int | None) -> Moved:
    """Return the part that a line tells.

    Args:
        line: What JSON made of it.
        name: What an error calls it.
        namespace: Where its node is to be.
        dimensions: The length of vectors; None: there are none.

    Raises:
        InvalidInputError: It is none.
    """
    if not isinstance(line, dict):
        raise InvalidInputError(f"{name} is not an object.")
    if len(line) == 1:
        (kind,) = line
        if kind in _KINDS:
            make, checkers = _KINDS[kind]
            fields = _checked_fields(line[kind], checkers, f"{name}: {kind}")
            return make(**fields) if kind != "log" else _entry_of(fields)
        if kind == "message":
            return _message_of(line[kind], name)
    return _node_of(line, name, namespace, dimensions)


Checker: TypeAlias = Callable[[Any], Any]
"""Returns a value as it is to be stored; a ValueError says what was expected."""


def _checked_fields(document: Any, checkers: Mapping[str, Checker], name: str) -> dict[str, Any]:
    if not isinstance(document, dict) or document.keys() != checkers.keys():
        raise InvalidInputError(f"{name} has {', '.join(checkers)}, and nothing else.")
    fields = {}
    for field, check in checkers.items():
        try:
            fields[field] = check(document[field])
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidInputError(f"{name}: {field} is {_shown(document[field])}; expected {error}.") from error
    return fields


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]}…"


def _text(value: Any) -> str:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise ValueError("a text of valid Unicode")


def _whole(least: int, most: int, what: str) -> Checker:
    def check(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise ValueError(what)

    return check


def _or_null(check: Checker) -> Checker:
    return lambda value: None if value is None else check(value)


def _one_of(*values: str) -> Checker:
    def check(value: Any) -> str:
        if isinstance(value, str) and value in values:
            return value
        raise ValueError(f"one of {', '.join(values)}")

    return check


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("true or false")


def _fraction(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError("a number from 0 to 1")


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise ValueError("bytes in base64")


def _version(value: Any) -> Version:
    if value is None or isinstance(value, str):
        return None if value is None else _text(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST:
        return value
    raise ValueError("a text, a number or null")


def _json_text(value: Any) -> str:
    if isinstance(value, str) and value.isascii() and "\0" not in value:
        loaded = json.loads(value, parse_constant=_refused)
        if value.count("[") + value.count("{") < _DEEPEST_JSON or _depth(loaded) < _DEEPEST_JSON:
            return value
    raise ValueError("JSON, as an ASCII text")


def _refused(name: str) -> None:
    raise ValueError(f"JSON, which has no {name}")


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth


def _json_object(value: Any) -> str:
    text = _json_text(value)
    if not isinstance(json.loads(text), dict):
        raise ValueError("a JSON object, as an ASCII text")
    return text


def _values(value: Any) -> tuple[ValuePart, ...]:
    if not isinstance(value, list):
        raise ValueError("a list of values")
    values = []
    for position, document in enumerate(value):
        try:
            values.append(ValuePart(**_checked_fields(document, _VALUE, f"value {position}")))
        except InvalidInputError as error:
            raise ValueError(f"values of channels; {str(error).rstrip('.')}") from error
    if len({each.channel for each in values}) < len(values):
        raise ValueError("one value a channel")
    return tuple(values)


def _conditions(value: Any) -> tuple[Condition, ...]:
    made = []
    for each in value if isinstance(value, list) else [None]:
        if not isinstance(each, list) or len(each) != 4:
            raise ValueError("a list of [name, found, required, holds]")
        name, found, required, holds = each
        made.append(Condition(_text(name), _found(found), _text(required), _flag(holds)))
    return tuple(made)


def _found(value: Any) -> float | str | None:
    checked_value = _version(value)
    return float(checked_value) if isinstance(checked_value, int) and abs(checked_value) > 1 << 53 else checked_value


_ms: Final = _whole(_FIRST_MS, _LAST_MS, "milliseconds since 1970-01-01 UTC")
_count: Final = _whole(0, _MOST, "a whole number of 0 or more")
_depth_of_tree: Final = _whole(0, _DEEPEST_TREE, f"a whole number from 0 to {_DEEPEST_TREE}")
_optional_text: Final = _or_null(_text)
_optional_ms: Final = _or_null(_ms)
_tier: Final = _one_of(*TIERS)

_VALUE: Final[Mapping[str, Checker]] = {
    "channel": _text, "version": _version, "encoding": _text, "depth": _depth_of_tree, "content": _bytes,
}  # fmt: skip
_KINDS: Final[Mapping[str, tuple[Callable[..., Any], Mapping[str, Checker]]]] = {
    "sweep": (SweepPart, {"at": _ms}),
    "log": (LogEntry, {
        "sequence": _whole(1, _MOST, "a whole number of 1 or more"), "node_id": _text, "from_tier": _tier,
        "to_tier": _tier, "rule": _text, "moved": _flag, "actor": _one_of("auto", "manual"), "reason": _text,
        "conditions": _conditions, "session_id": _optional_text, "at": _ms, "previous_hash": _text, "hash": _text,
    }),
    "edge": (EdgePart, {"source": _text, "target": _text, "kind": _text, "created_at": _ms}),
    "session": (SessionPart, {
        "id": _text, "started_at": _ms, "last_active": _ms, "ended_at": _optional_ms, "turn": _count,
    }),
    "access": (AccessPart, {
        "session": _text, "node": _text, "turn": _count, "at": _ms, "confidence": _fraction, "run_id": _optional_text,
        "writer": _text, "judged": _flag,
    }),
    "forgotten": (ForgottenPart, {
        "session": _text, "node": _text, "accesses": _count, "first_at": _ms, "last_at": _ms,
        "lowest_confidence": _fraction, "to_judge": _flag,
    }),
    "use": (UsePart, {
        "session": _text, "node": _text, "uses": _count, "lowest_confidence": _fraction, "last_used": _ms,
    }),
    "outcome": (OutcomePart, {
        "session": _text, "node": _text, "run_id": _optional_text, "success": _flag, "at": _ms, "learned": _flag,
    }),
    "key_value": (KeyValuePart, {"collection": _text, "key": _text, "value": _json_text}),
    "thread": (ThreadPart, {"kind": _text, "id": _text}),
    "chunk": (ChunkPart, {
        "kind": _text, "thread": _text, "number": _whole(1, (1 << 32) - 1, "a whole number from 1 to 4294967295"),
        "content": _bytes,
    }),
    "checkpoint": (CheckpointPart, {
        "kind": _text, "thread": _text, "graph": _text, "id": _text, "parent_id": _optional_text, "created_at": _ms,
        "entries": _count, "nodes": _count, "metadata": _json_object, "encoding": _text, "head": _bytes,
        "values": _values,
    }),
    "write": (WritePart, {
        "kind": _text, "thread": _text, "graph": _text, "checkpoint_id": _text, "task_id": _text,
        "place": _whole(-_MOST, _MOST, "a whole number"), "task_path": _text, "channel": _text, "encoding": _text,
        "depth": _depth_of_tree, "content": _bytes,
    }),
}  # fmt: skip
_NAMES: Final = {make: name for name, (make, _) in _KINDS.items()}

NAMES: Final[Mapping[type, str]] = {NodePart: "node", Message: "message", **_NAMES}  # type: ignore[dict-item]  # the makers of _KINDS are these types
"""What a part of each type is called."""


def _entry_of(fields: dict[str, Any]) -> LogEntry:
    sequence, previous_hash, hashed = (fields.pop(name) for name in ("sequence", "previous_hash", "hash"))
    decision = PromotionDecision(**{**fields, "at": moment(fields["at"])})
    return LogEntry(sequence=sequence, decision=decision, previous_hash=previous_hash, hash=hashed)


def _node_of(line: dict[str, Any], name: str, namespace: str, dimensions: int | None) -> NodePart:
    known = {*_TEXTS, *_TIMES, *_HISTORY, "confidence", "metadata", "access_count", "pinned", "vector"}
    if unknown := line.keys() - known:
        listed = ", ".join(field.encode("utf-8", "replace").decode() for field in sorted(unknown))
        raise InvalidInputError(f"{name} has unknown fields: {_shown(listed)}.")
    if "text" not in line:
        raise InvalidInputError(f"{name} has no text.")
    stored = line.pop("vector", None)
    times: dict[str, Any] = {
        field: _time(line.pop(field), f"{name}: {field}") for field in (*_TIMES, *_HISTORY) if field in line
    }
    since, faded = (None if field not in times else milliseconds(times.pop(field)) for field in _HISTORY)
    count, pinned = line.pop("access_count", 0), line.pop("pinned", False)
    try:
        count, pinned = _count(count), _flag(pinned)
    except ValueError as error:
        raise InvalidInputError(
            f"{name}: access_count must be a whole number of 0 or more, pinned true or false."
        ) from error
    try:
        node = checked_node(Node(**line, **times, access_count=count, pinned=pinned, namespace=namespace), name)
    except TypeError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    return NodePart(node, None if stored is None else _vector(stored, dimensions, name), since, faded)


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
        found = datetime.fromisoformat(value)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (OverflowError, TypeError, ValueError):
        pass
    raise InvalidInputError(f"{name} is {value!r}; expected an ISO 8601 time with its zone, in the years 1 to 9999.")


def _vector(stored: Any, dimensions: int | None, name: str) -> Vector:
    if dimensions is None:
        raise InvalidInputError(f"{name} has a vector, but line 1 tells no dimensions.")
    try:
        content = base64.b64decode(stored, validate=True)
        vectors = checked([np.frombuffer(content, dtype="<f4")], 1, dimensions)
    except (TypeError, ValueError, binascii.Error, EmbeddingError) as error:
        raise InvalidInputError(f"{name}: its vector is not {dimensions} numbers in base64: {error}") from error
    row: Vector = vectors[0]
    return row


def unnumbered(entry: LogEntry) -> LogEntry:
    """Return an entry without its place in a chain: what stays the same wherever it is moved."""
    return replace(entry, sequence=0, previous_hash="", hash="")
