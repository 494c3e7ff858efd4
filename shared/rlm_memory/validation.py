"""What may be stored, checked before anything is written. Pure."""

from __future__ import annotations

import contextlib
import json
import math
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from numbers import Real
from os import PathLike
from typing import Any, Final, cast

from rlm_memory.errors import InvalidInputError, InvalidNodeError, NodeNotFoundError
from rlm_memory.filters import is_storable
from rlm_memory.records import NODE_TYPES, TIERS, Node, Tier

MAX_NAMESPACE: Final = 512


def checked_nodes(
    given: str | Node | Iterable[str | Node],
    *,
    ids: Sequence[str | None] | None,
    metadatas: Sequence[Mapping[str, Any] | None] | None,
    defaults: Node,
) -> list[Node]:
    """Return a complete node for each text or node given, in order, each with an id.

    Args:
        given: Texts, nodes, or a mixture; a single one counts as a list of one.
        ids: An id for each; None or "" asks for a new one. Without `ids`, a node's own id is kept.
        metadatas: Metadata for each, None for none. Without `metadatas`, a node's own metadata is kept.
        defaults: Where type, tier, confidence, provenance and namespace of the texts come from.

    Raises:
        InvalidNodeError: One of them cannot be stored; the message names its position and what is wrong.
    """
    listed = [given] if isinstance(given, str | Node) else list(given)
    for name, values in (("ids", ids), ("metadatas", metadatas)):
        if values is not None and (isinstance(values, str | Mapping) or len(values) != len(listed)):
            found = type(values).__name__ if isinstance(values, str | Mapping) else len(values)
            raise InvalidNodeError(f"{name}: expected a list of {len(listed)}, one for each text, got {found}.")
    nodes = []
    for position, item in enumerate(listed):
        if not isinstance(item, str | Node):
            raise InvalidNodeError(f"Item {position} is {type(item).__name__}; expected a text or a Node.")
        like = item if isinstance(item, Node) else defaults
        node = Node(  # without what the store keeps
            text=item.text if isinstance(item, Node) else item,
            id=cast("str", like.id if ids is None else ids[position]),  # None too: a new one
            type=like.type,
            subtype=like.subtype,
            tier=like.tier,
            confidence=like.confidence,
            provenance=like.provenance,
            metadata=like.metadata if metadatas is None else {} if (own := metadatas[position]) is None else own,
            namespace=defaults.namespace,
        )
        nodes.append(checked_node(node, f"Item {position}"))
    return nodes


def checked_node(node: Node, name: str) -> Node:
    """Return the node, with a new id if it has none.

    Args:
        node: What is to be stored.
        name: What the error calls it.

    Raises:
        InvalidNodeError: It cannot be stored.
    """
    _expect_text(node.text, f"{name}: its text")
    if node.id is None or node.id == "":
        node = replace(node, id=str(uuid.uuid4()))
    else:
        _expect_text(node.id, f"{name}: its id")
    if node.type not in NODE_TYPES:
        raise InvalidNodeError(f"{name}: unknown type {node.type!r}; expected one of {', '.join(NODE_TYPES)}.")
    if node.tier not in TIERS:
        raise InvalidNodeError(f"{name}: unknown tier {node.tier!r}; expected one of {', '.join(TIERS)}.")
    confidence = node.confidence
    if isinstance(confidence, bool) or not isinstance(confidence, Real) or not 0.0 <= confidence <= 1.0:
        raise InvalidNodeError(f"{name}: confidence is {confidence!r}; expected a number from 0 to 1.")
    for field in ("subtype", "provenance"):
        if getattr(node, field) is not None:
            _expect_text(getattr(node, field), f"{name}: its {field}")
    _expect_json(node.metadata, f"{name}: metadata")
    return node


def _expect_text(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise InvalidNodeError(f"{name} is {type(value).__name__}; expected a str.")
    if value.isascii():
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidNodeError(
            f"{name} has a lone surrogate at character {error.start} and is no valid Unicode text; "
            "replace it first, for example with text.encode('utf-8', 'replace').decode()."
        ) from error


def _expect_json(metadata: object, name: str) -> None:
    if not isinstance(metadata, Mapping):
        raise InvalidNodeError(f"{name} is {type(metadata).__name__}; expected a dict.")
    # Most metadata need not be written and read to know that it comes back.
    if not _is_plain(metadata) and (fault := _json_fault(metadata, name)):
        raise InvalidNodeError(fault)


def _is_plain(metadata: Mapping[object, object]) -> bool:
    """Tell whether these are texts, usual numbers, booleans and None alone, under texts."""
    texts = [*metadata]
    for value in metadata.values():
        kind = type(value)
        if kind is str:
            texts.append(value)
        elif kind is int:
            if not -_MAX_TURN <= cast("int", value) <= _MAX_TURN:
                return False
        elif kind is float:
            if not math.isfinite(cast("float", value)):
                return False
        elif kind is not bool and value is not None:
            return False
    try:
        return type(metadata) is dict and is_storable("".join(cast("list[str]", texts)))
    except TypeError:  # a key is no text
        return False


def checked_json(value: object, name: str) -> object:
    """Return the value if it comes back from JSON as it is.

    Raises:
        InvalidInputError: It does not; the message names the entry that is at fault.
    """
    if fault := _json_fault(value, name):
        raise InvalidInputError(fault)
    return value


def _json_fault(value: object, name: str) -> str | None:
    """Tell why a value would not come back from JSON as it is, or not everywhere: a deep stack reads less depth."""
    sound = False
    with contextlib.suppress(TypeError, ValueError, RecursionError):  # which entry it is, is found below
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
        sound = json.loads(text) == value
        if sound and text.count("{") + text.count("[") <= _MAX_DEPTH:
            return None
    fault = _fault(value, name, depth=0)
    return fault if fault or sound else f"{name} does not come back from JSON as it is."


def _fault(value: object, path: str, depth: int) -> str | None:
    """Return what JSON cannot hold in this value, with the path to it; None if it can hold all of it."""
    if depth > _MAX_DEPTH:
        return f"{path} is nested more than {_MAX_DEPTH} levels deep."
    match value:
        case None | bool() | int():
            return None
        case float():
            return None if math.isfinite(value) else f"{path} is {value}, which JSON does not have; use None."
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return f"{path} has a lone surrogate and is no valid Unicode text."
            return None
        case list():
            faults = (_fault(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value))
        case dict():
            for key in value:
                if not isinstance(key, str):
                    return f"{path} has the key {key!r}, a {type(key).__name__}; expected keys of type str."
                if key_fault := _fault(key, f"{path}: the key {key!r}", depth + 1):
                    return key_fault
            faults = (_fault(item, f"{path}[{key!r}]", depth + 1) for key, item in value.items())
        case tuple():
            return f"{path} is a tuple, which would come back as a list; use a list."
        case _:
            return (
                f"{path} is of the type {type(value).__name__}, which JSON does not have; "
                "convert it to a str, a number, a list or a dict first."
            )
    return next((fault for fault in faults if fault), None)


_MAX_DEPTH: Final = 200


def checked_namespace(namespace: object) -> str:
    """Return the namespace if it can name one: a text of 1 to 512 characters."""
    if not isinstance(namespace, str) or not 0 < len(namespace) <= MAX_NAMESPACE:
        raise InvalidInputError(f"namespace is {namespace!r}; expected a str of 1 to {MAX_NAMESPACE} characters.")
    _expect_text(namespace, "namespace")
    return namespace


def checked_path(path: object) -> str | PathLike[str]:
    """Return the path if a file could have it; whether it has is for the system to say."""
    try:
        name = os.fspath(cast("str | PathLike[str]", path))
        possible = isinstance(name, str) and name != "" and b"\0" not in os.fsencode(name)
    except (TypeError, UnicodeEncodeError):
        possible = False
    if not possible:
        raise InvalidInputError(f"{path!r} is not the path of a file; expected a str or a Path, without NUL.")
    return cast("str | PathLike[str]", path)


def checked_key(key: object) -> str:
    """Return the key of a conversation if it can be one: any text."""
    if not isinstance(key, str):
        raise InvalidInputError(f"The key of a conversation is {key!r}; expected a str.")
    _expect_text(key, "The key of a conversation")
    return key


def checked_session_id(session_id: object) -> str:
    """Return the session id if it can be one: a text that is not empty."""
    if not isinstance(session_id, str) or not session_id:
        raise InvalidInputError(f"session_id is {session_id!r}; expected a str that is not empty.")
    _expect_text(session_id, "session_id")
    return session_id


def checked_turn(turn: object) -> int:
    """Return the number of a turn if it can be one."""
    number = _whole("turn", turn)
    if number > _MAX_TURN:
        raise InvalidInputError(f"turn is {number}; expected at most {_MAX_TURN}.")
    return number


_MAX_TURN: Final = (1 << 63) - 1


def checked_run_id(run_id: object) -> str | None:
    """Return the run id if it can be one: None, or a text that is not empty."""
    if run_id is None:
        return None
    if not isinstance(run_id, str) or not run_id:
        raise InvalidInputError(f"run_id is {run_id!r}; expected a str that is not empty, or None.")
    _expect_text(run_id, "run_id")
    return run_id


def checked_reason(reason: object) -> str:
    """Return the reason if it says something: it is what the log will tell."""
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInputError(f"reason is {reason!r}; expected a str that says why: the log keeps it.")
    _expect_text(reason, "reason")
    return reason


def checked_time(moment: object) -> datetime:
    """Return the moment if it is one."""
    if not isinstance(moment, datetime):
        raise InvalidInputError(f"{moment!r} is not a time; expected a datetime, such as datetime.now(UTC).")
    return moment


def checked_id(id: object) -> str:
    """Return the id if a node could have it."""
    if not isinstance(id, str):
        raise InvalidInputError(f"{id!r} is not an id; expected a str.")
    _expect_text(id, "id")
    return id


def checked_ids(ids: str | Iterable[str]) -> list[str]:
    """Return the ids as a list; a single one counts as a list of one.

    Raises:
        InvalidInputError: One of them is not a str. One that cannot be stored is simply not there.
    """
    listed = [ids] if isinstance(ids, str) else list(ids)
    for id in listed:
        if not isinstance(id, str):
            raise InvalidInputError(f"{id!r} is not an id; expected a str.")
    return [id for id in listed if id.isascii() or not _has_surrogate(id)]


def no_node(*ids: str, namespace: str) -> NodeNotFoundError:
    """Return the error of ids that are not in a namespace, in the one wording of all calls and commands."""
    return NodeNotFoundError(
        f"There is no node {', '.join(map(repr, ids))} in namespace {namespace!r}. "
        "List the ids: Memory.list, rlm-memory list."
    )


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def checked_tiers(tiers: Iterable[Tier] | Tier | None, *, include_archived: bool) -> tuple[Tier, ...]:
    """Return the tiers to look at: those asked for, else all but the archive.

    Raises:
        InvalidInputError: One is unknown.
    """
    if tiers is None:
        return TIERS if include_archived else tuple(tier for tier in TIERS if tier != "archive")
    listed = [tiers] if isinstance(tiers, str) else list(tiers)
    for tier in listed:
        if tier not in TIERS:
            raise InvalidInputError(f"Unknown tier {tier!r}; expected one of {', '.join(TIERS)}.")
    if include_archived:
        listed.append("archive")
    return tuple(dict.fromkeys(listed))


def checked_count(name: str, value: object) -> int:
    """Return a whole number of 0 or more; of more than any namespace can hold, just that many.

    Raises:
        InvalidInputError: It is not one.
    """
    return min(_whole(name, value), _MOST)


_MOST: Final = 1 << 40
"""The nodes that a namespace has numbers for. Greater counts would be too big for SQLite, and for a list."""


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 0:
        raise InvalidInputError(f"{name} is {value!r}; expected a whole number of 0 or more.")
    return int(value.__index__())
