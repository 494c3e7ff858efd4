"""The form in which values are stored: nodes that name each other by number.

A **slot** is what stands for a value inside its container:

- `null`, `true`, a number, a short text: the value itself;
- `[17]`: node 17 of the same segment. Two slots with the same number are one object, so identity, sharing and cycles
  come back as they were;
- `["global", "math:sqrt"]`, `["module", "math"]`, `["provided", "llm_query"]`, `["namespace"]`: something that is
  found again by its name and was never stored.

A **node** is `[tag, slots, data]`: the tag names its kind, `slots` is a list, or an object with text keys, of the
values inside it, `data` is everything else that its kind needs (left out when there is none). Nodes are flat: a list in
a list is two nodes, which is why no depth of nesting can exhaust the stack of the reader.

A **segment** is a list of nodes that refer to nobody outside it. Variables that share an object are in one segment; a
variable that did not change is in a segment that did not change, and is not written again.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rlm_memory.checkpoints.errors import CheckpointDamagedError

Slot: TypeAlias = Any
"""None, bool, int, float, str, or a list: see the module."""
Slots: TypeAlias = list[Slot] | dict[str, Slot] | None
Node: TypeAlias = list[Any]
Segment: TypeAlias = list[Node]

BLOB_BYTES = 64 * 1024
"""A value of this size or more is stored beside the nodes: once, and only when it changed."""
ATOMS = frozenset({type(None), bool, int, float, str})
_LABELLED = frozenset({"list", "tuple", "deque", "set", "frozenset"})


@dataclass(slots=True)
class Heap:
    """Encoded values: where each root is, the segments, and the large values that are stored beside them.

    `roots` has one (segment number, slot) a root, in the order in which the roots were given. `blobs` maps the name of
    a large value, its SHA-256 and a suffix, to its bytes.
    """

    roots: list[tuple[int, Slot]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Issue:
    """A value that is not what it was: where it is, its type, why, and what it looked like.

    `stage` is "save" where the value could not be written, "load" where it was written and could not be rebuilt.
    """

    path: str
    type: str
    reason: str
    repr: str = ""
    stage: str = "save"

    def __str__(self) -> str:
        return f"{self.path} ({self.type}): {self.reason}"


def blob_name(data: bytes, suffix: str) -> str:
    """Return the name under which these bytes are stored: the same bytes always have the same name."""
    return f"{hashlib.sha256(data).hexdigest()}.{suffix}"


def is_text(value: str) -> bool:
    """Tell whether a text survives JSON: two lone surrogates side by side would come back as one character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the garbage collector: it would walk the growing heap again and again, a third of the time, for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def to_json(value: Any) -> bytes:
    """Return compact JSON in UTF-8, without NaN.

    A lone surrogate, as the message of an error may have one, is let through: `json.loads` takes it as it is.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def from_json(data: bytes, what: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        CheckpointDamagedError: it is no JSON, or is nested deeper than anything that is written here.
    """
    try:
        with uncollected():
            return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CheckpointDamagedError(f"{what} is not valid JSON: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def children(slots: Slots) -> list[Slot]:
    """Return the slots that are references, in order; atoms are left out.

    Raises:
        CheckpointDamagedError: a slot is neither an atom nor a reference.
    """
    if not slots:
        return []
    values = slots.values() if isinstance(slots, dict) else slots
    kinds = set(map(type, values)) - ATOMS
    if not kinds:
        return []
    if kinds != {list}:
        raise CheckpointDamagedError("A slot is a JSON object; expected an atom or a reference.")
    return [slot for slot in values if type(slot) is list]


def node_number(slot: Slot, size: int) -> int | None:
    """Return the number of the node that a reference means, or None where it means a name.

    Raises:
        CheckpointDamagedError: it means a node that the segment does not have.
    """
    first = slot[0] if slot else None
    if type(first) is str:
        return None
    if len(slot) != 1 or type(first) is not int or not 0 <= first < size:
        raise CheckpointDamagedError(f"The reference {str(slot)[:80]} leads nowhere; the segment has {size} nodes.")
    return first


def find(segment: Segment, roots: Sequence[tuple[str, Slot]], wanted: Iterable[Slot]) -> Iterator[tuple[str, Slot]]:
    """Yield the path and the slot of each wanted reference, nearest to its root first.

    A root is named whenever it is wanted itself; what lies deeper is named once.
    """
    missing = {json.dumps(slot) for slot in wanted}
    yield from ((path, slot) for path, slot in roots if json.dumps(slot) in missing)
    missing -= {json.dumps(slot) for _, slot in roots}
    seen: set[int] = set()
    level = list(roots)
    while level and missing:
        below: list[tuple[str, Slot]] = []
        for path, slot in level:
            if type(slot) is not list:
                continue
            key = json.dumps(slot)
            if key in missing:
                missing.discard(key)
                yield path, slot
            number = node_number(slot, len(segment))
            if number is not None and number not in seen:
                seen.add(number)
                below.extend(_labelled(path, segment[number]))
        level = below


def _labelled(path: str, node: Node) -> Iterator[tuple[str, Slot]]:
    tag, slots = node[0], node[1]
    if isinstance(slots, dict):
        yield from ((f"{path}[{key!r}]", slot) for key, slot in slots.items())
    elif tag == "map":
        for key, slot in zip((slots or ())[::2], (slots or ())[1::2], strict=False):  # it may be malformed
            name = repr(key) if type(key) is not list else "<key>"
            yield f"{path}<key>", key
            yield f"{path}[{name}]", slot
    elif tag in _LABELLED:
        yield from ((f"{path}[{index}]", slot) for index, slot in enumerate(slots or ()))
    else:
        parts = PART_NAMES.get(tag, ())
        for index, slot in enumerate(slots or ()):
            yield f"{path}.{parts[index] if index < len(parts) else index}", slot


PART_NAMES: dict[str, tuple[str, ...]] = {
    "instance": ("__class__", "base", "__dict__"),
    "extended": ("__class__", "base", "__dict__"),
    "function": ("source", "__globals__", "__defaults__", "__kwdefaults__", "__annotations__", "__dict__"),
    "class": ("source", "needs", "__dict__"),
    "model": ("__class__", "__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"),
    "partial": ("func", "args", "keywords", "__dict__"),
    "method": ("__func__", "__self__"),
}
"""What the slots of a kind are called in the path of an issue."""


def digest(segment: Segment, root: Slot) -> str:
    """Return a digest of everything that can be reached from a slot: equal for equal values with equal sharing.

    The numbers of the nodes do not matter, only who is the same as whom.
    """
    numbers: dict[int, int] = {}
    queue: list[int] = []

    def renumber(slot: Slot) -> Slot:
        number = node_number(slot, len(segment)) if type(slot) is list else None
        if number is None:
            return slot
        if number not in numbers:
            numbers[number] = len(numbers)
            queue.append(number)
        return [numbers[number]]

    whole = hashlib.sha256(to_json(renumber(root)))
    for number in queue:  # grows while it is walked
        tag, slots, *data = segment[number]
        match slots:
            case dict():
                renumbered: Slots = {key: renumber(slot) for key, slot in slots.items()}
            case list():
                renumbered = [renumber(slot) for slot in slots]
            case _:
                renumbered = None
        whole.update(to_json([tag, renumbered, *data]))
    return whole.hexdigest()
