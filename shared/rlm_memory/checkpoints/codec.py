"""Values to nodes and back: identity, sharing and cycles are kept, and nothing recurses.

`encode` visits each object once and gives it a node; the stack of what is still to visit is a list, so that depth costs
memory and nothing else. A value that cannot be written becomes a node that says why, and what holds it is written as
usual. `decode` makes what can hold itself empty, builds what cannot when its parts are there, and fills the rest.
The kinds of values are in `rlm_memory.checkpoints.kinds`; this module knows only how nodes hang together.
"""

from __future__ import annotations

import base64
import json
import math
import re
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from rlm_memory.checkpoints.errors import CheckpointDamagedError
from rlm_memory.checkpoints.heap import (
    BLOB_BYTES,
    Heap,
    Issue,
    Node,
    Segment,
    Slot,
    blob_name,
    children,
    find,
    is_text,
    node_number,
    uncollected,
)
from rlm_memory.checkpoints.kinds import UNSAVED, kind_of, kind_tagged
from rlm_memory.checkpoints.kinds.base import AnyKind, Later, MutableKind, Parts, UnrestorableError, UnsavableError
from rlm_memory.checkpoints.kinds.functions import PICKLE, write_pickle
from rlm_memory.checkpoints.names import NameRefusedError, Permissions, name_of
from rlm_memory.checkpoints.placeholder import Payload, Unrestored
from rlm_memory.checkpoints.sources import Sources

INLINE_TEXT = 256
"""A longer text is a node of its own, so that a text that is held in two places is written once."""
_INT_LIMIT = 2**63
_NAMED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)
_PLAIN = frozenset({str, int, float, bytes, list, dict, tuple, set, frozenset})
"""Types whose values are not found by a name, unless the host provides one."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """What a heap needs of the program around it, when it is written and when it is read.

    `namespace` is the dict that functions of the REPL have as their globals. `provided` are values that the host puts
    there itself: they are stored by name alone. `sources` are the cells that ran.
    """

    namespace: dict[str, Any] | None = None
    provided: Mapping[str, Any] = field(default_factory=dict)
    sources: Sources = field(default_factory=Sources)
    pickle: bool = False


def encode(roots: Sequence[tuple[str, Any]], around: Surroundings | None = None) -> tuple[Heap, list[Issue]]:
    """Return the heap of the (label, value) pairs, and the values in them that could not be written.

    The labels begin the paths of the issues. `heap.roots` are in the order of the pairs.
    """
    with uncollected():
        return Writer(around or Surroundings()).run(roots)


def decode(
    heap: Heap,
    labels: Sequence[str],
    *,
    permissions: Permissions | None = None,
    around: Surroundings | None = None,
    blob: Callable[[str], bytes] | None = None,
) -> tuple[list[Any], list[Issue]]:
    """Return the values of the roots, in order, and those in them that could not be rebuilt.

    `blob` gives the bytes of a large value by its name; without it they are taken from the heap.

    Raises:
        CheckpointDamagedError: the nodes do not hang together, or a blob is missing.
    """
    with uncollected():
        return _decode(
            heap, labels, Reader(permissions or Permissions(), around or Surroundings(), blob or heap.blobs.__getitem__)
        )


def _decode(heap: Heap, labels: Sequence[str], reader: Reader) -> tuple[list[Any], list[Issue]]:
    values: list[Any] = [None] * len(heap.roots)
    issues: list[Issue] = []
    by_segment: dict[int, list[int]] = {}
    for index, root in enumerate(heap.roots):
        by_segment.setdefault(root[0], []).append(index)
    for number, indexes in by_segment.items():
        if not 0 <= number < len(heap.segments):
            raise CheckpointDamagedError(f"There is no segment {number}; the heap has {len(heap.segments)}.")
        slots = [heap.roots[index][1] for index in indexes]
        found, withheld = reader.read(heap.segments[number], slots)
        for index, value in zip(indexes, found, strict=True):
            values[index] = value
        named = [(labels[index], slot) for index, slot in zip(indexes, slots, strict=True)]
        issues.extend(_reported(heap.segments[number], named, withheld))
    return values, issues


def _reported(
    segment: Segment, roots: Sequence[tuple[str, Slot]], withheld: Sequence[tuple[Slot, Unrestored]]
) -> Iterator[Issue]:
    reasons = {json.dumps(slot): value for slot, value in withheld}
    for path, slot in find(segment, roots, [slot for slot, _ in withheld]):
        value = reasons[json.dumps(slot)]
        yield Issue(path, value.unrestored_type, value.unrestored_reason, stage="load")


class Writer:
    """Gives each object a node; see `encode`. The kinds call `slot`, `data` and `note`."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.families: dict[int, list[Any]] = {}
        """Arrays by the memory they share; kept here by the kind of arrays while the values are visited."""
        self.globals_of: dict[int, Any] = {}
        """The globals that functions share; kept here by the kind of functions while they are visited."""
        self._provided = {id(value): name for name, value in around.provided.items()}
        self._nodes: list[Node] = []
        self._values: list[Any] = []  # keeps temporary objects alive: an id must not be given twice
        self._refs: list[list[int]] = []
        self._memo: dict[int, list[int]] = {}
        self._names: dict[int, Slot] = {}
        self._visit: list[int] = []
        self._late: deque[tuple[int, Later]] = deque()
        self._blobs: dict[str, bytes] = {}
        self._unsaved: dict[int, str] = {}
        self._notes: dict[int, str] = {}
        self._writing = self._current = 0
        self._group_of: list[int] = []  # node -> the root it was first reached from
        self._parents: list[int] = []  # union-find over the roots

    def run(self, roots: Sequence[tuple[str, Any]]) -> tuple[Heap, list[Issue]]:
        """Visit the roots, one after the other, and return the heap and the issues."""
        slots: list[Slot] = []
        for number, (_, value) in enumerate(roots):
            self._parents.append(number)
            self._current = number
            slots.append(self.slot(value))
            self._drain()
        while self._late:
            number, later = self._late.popleft()
            self._current = self._group_of[number]
            self._write(number, later)
            self._drain()
        return self._segmented(roots, slots)

    def slot(self, value: Any) -> Slot:
        """Return what stands for the value in the node of its container."""
        kind = type(value)
        if kind is str:
            if len(value) <= INLINE_TEXT and (value.isascii() or is_text(value)):
                return value
        elif kind is int:
            if -_INT_LIMIT <= value < _INT_LIMIT:
                return value
        elif kind is float:
            if math.isfinite(value):
                return value
        elif value is None or kind is bool:
            return value
        ref = self._memo.get(id(value))
        if ref is None:
            return self._admit(value, kind)
        self._join(self._group_of[ref[0]])
        return ref

    def data(self, content: bytes, suffix: str) -> Any:
        """Return what stands for these bytes in the data of a node: base64, or the name of a blob if they are many."""
        if len(content) < BLOB_BYTES:
            return base64.b64encode(content).decode()
        name = blob_name(content, suffix)
        self._blobs[name] = content
        return {"blob": name}

    def keep_blobs(self, blobs: Mapping[str, bytes]) -> None:
        """Take over the blobs that the data of a node names already."""
        self._blobs.update(blobs)

    def note(self, reason: str) -> None:
        """Report that the value that is being written will not come back in every respect."""
        self._notes[self._writing] = reason

    def _admit(self, value: Any, kind: type) -> Slot:
        if kind not in _PLAIN or self._provided or value is self.around.namespace:
            named = self._names.get(id(value)) or self._named(value)
            if named is not None:
                self._names[id(value)] = named
                return named
        number = len(self._nodes)
        ref = [number]
        self._memo[id(value)] = ref
        self._nodes.append([])
        self._values.append(value)
        self._refs.append(ref)
        self._group_of.append(self._current)
        self._visit.append(number)
        return ref

    def _named(self, value: Any) -> Slot:
        kind = type(value)  # isinstance would ask the value, which may be hostile
        if value is self.around.namespace:
            return ["namespace"]
        if id(value) in self._provided:
            return ["provided", self._provided[id(value)]]
        if issubclass(kind, types.ModuleType):
            return ["module", value.__name__]
        if issubclass(kind, _NAMED):
            name = name_of(value)
            return ["global", name] if name is not None else None
        return None

    def _drain(self) -> None:
        while self._visit:
            number = self._visit.pop()
            self._current = self._group_of[number]
            self._write(number)

    def _write(self, number: int, later: Later | None = None) -> None:
        value, mark = self._values[number], len(self._nodes)
        self._writing = number
        try:
            kind = kind_of(value)
            tag, parts = kind.tag, later.parts() if later is not None else kind.write(value, self)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  # attributes and iterators may be anybody's code
            self._forget(mark)
            tag, parts = self._write_otherwise(number, value, error)
        if isinstance(parts, Later):
            self._late.append((number, parts))
        else:
            slots, data = parts
            self._nodes[number] = [tag, slots] if data is None else [tag, slots, data]

    def _write_otherwise(self, number: int, value: Any, error: Exception) -> tuple[str, Parts]:
        """Write a value that its kind could not: with pickle, where the caller chose that, or as what is missing."""
        known = isinstance(error, UnsavableError)
        reason = str(error) if known else f"writing it failed: {type(error).__name__}: {error}"[:500]
        if self.around.pickle:
            try:
                return PICKLE.tag, write_pickle(value, self)
            except UnsavableError as refused:
                reason = f"{reason}; {refused}"
        self._unsaved[number] = reason
        return UNSAVED, (None, {"type": _type_name(value), "reason": reason, "repr": _shown(value)})

    def _forget(self, mark: int) -> None:
        """Take back what a value that cannot be written had already admitted."""
        for value in self._values[mark:]:
            del self._memo[id(value)]
        for column in (self._nodes, self._values, self._refs, self._group_of):
            del column[mark:]
        while self._visit and self._visit[-1] >= mark:
            self._visit.pop()

    def _join(self, group: int) -> None:
        mine, other = self._leader(self._current), self._leader(group)
        if mine != other:
            self._parents[max(mine, other)] = min(mine, other)

    def _leader(self, group: int) -> int:
        while self._parents[group] != group:
            self._parents[group] = group = self._parents[self._parents[group]]
        return group

    def _segmented(self, roots: Sequence[tuple[str, Any]], slots: list[Slot]) -> tuple[Heap, list[Issue]]:
        heap = Heap(blobs=self._blobs)
        numbers: dict[int, int] = {}
        for group in range(len(roots)):
            numbers.setdefault(self._leader(group), len(numbers))
        heap.segments = [[] for _ in numbers]
        for node, ref, group in zip(self._nodes, self._refs, self._group_of, strict=True):
            number = numbers[self._leader(group)]
            ref[0] = len(heap.segments[number])  # every slot that means this node is this one list
            heap.segments[number].append(node)
        heap.roots = [(numbers[self._leader(group)], slot) for group, slot in enumerate(slots)]
        return heap, self._issues(heap, [label for label, _ in roots])

    def _issues(self, heap: Heap, labels: Sequence[str]) -> list[Issue]:
        reasons = self._notes | self._unsaved
        issues: list[Issue] = []
        if not reasons:
            return issues
        wanted: dict[int, dict[int, int]] = {}
        for old in reasons:
            segment = self._segment_of(heap, old)
            wanted.setdefault(segment, {})[self._refs[old][0]] = old
        for segment, olds in wanted.items():
            starts = [(label, root[1]) for label, root in zip(labels, heap.roots, strict=True) if root[0] == segment]
            for path, slot in find(heap.segments[segment], starts, [[new] for new in olds]):
                value = self._values[olds[slot[0]]]
                issues.append(Issue(path, _type_name(value), reasons[olds[slot[0]]], _shown(value)))
        return issues

    def _segment_of(self, heap: Heap, old: int) -> int:
        return heap.roots[self._leader(self._group_of[old])][0]


class _Step(Enum):
    OPEN = auto()
    MAKE = auto()
    CLOSE = auto()


@dataclass(slots=True)
class _Plan:
    """A node, read once: its kind, what it holds, and the references among that."""

    tag: str
    kind: AnyKind | None
    slots: Any
    data: Any
    parts: list[Slot]


class Reader:
    """Rebuilds the values of segments; see `decode`. The kinds call `value`, `data` and look at `permissions`."""

    def __init__(self, permissions: Permissions, around: Surroundings, blob: Callable[[str], bytes]) -> None:
        self.permissions = permissions
        self.around = around
        self._blob = blob
        self._named: dict[str, Any] = {}
        self._plans: list[_Plan] = []
        self._objects: list[Any] = []
        self._begun: list[bool] = []
        self._withheld: list[tuple[Slot, Unrestored]] = []
        self._open: set[int] = set()  # nodes that are made and not yet filled
        self._unfilled = 0  # objects that have no contents yet and whose hash may depend on them

    def read(self, segment: Segment, roots: Sequence[Slot]) -> tuple[list[Any], list[tuple[Slot, Unrestored]]]:
        """Return the values of the roots, and every placeholder with the slot that it stands in."""
        if not isinstance(segment, list):
            raise CheckpointDamagedError("A segment is not a list of nodes.")
        self._plans, self._withheld = [_plan(node, len(segment)) for node in segment], []
        self._objects = [_MISSING] * len(segment)
        self._begun = [False] * len(segment)
        self._named.clear()
        self._build_trees()
        for root in roots:
            if type(root) is list:
                node_number(root, len(segment))
            self._restore(root)
        return [self.value(root) for root in roots], self._withheld

    def value(self, slot: Slot) -> Any:
        """Return the value that a slot stands for.

        Raises:
            UnrestorableError: it is not made yet, because what is being made now is a part of it.
        """
        found = self._peek(slot) if type(slot) is list else slot
        if found is _MISSING:
            raise UnrestorableError("it is needed to rebuild itself")
        return found

    def data(self, content: Any) -> bytes:
        """Return the bytes that `Writer.data` was given."""
        return self._blob(content["blob"]) if isinstance(content, dict) else base64.b64decode(content, validate=True)

    def _peek(self, reference: Slot) -> Any:
        number = reference[0]
        return self._objects[number] if type(number) is int else self._find(reference)

    def _find(self, reference: Slot) -> Any:
        key = json.dumps(reference)
        if key not in self._named:
            try:
                self._named[key] = self._look_up(*reference)
            except (NameRefusedError, TypeError) as error:
                reason = str(error) if isinstance(error, NameRefusedError) else "this kind of name is not known here"
                payload = Payload(str(reference[0]), None, reference[1:])
                self._named[key] = placeholder = Unrestored(str(reference[-1])[:200], reason, payload)
                self._withheld.append((reference, placeholder))
        return self._named[key]

    def _look_up(self, kind: str, name: str | None = None) -> Any:
        match kind, name:
            case "namespace", None if self.around.namespace is not None:
                return self.around.namespace
            case "provided", str() if name in self.around.provided:
                return self.around.provided[name]
            case "module", str():
                return self.permissions.find_module(name)
            case "global", str():
                return self.permissions.find(name)
        raise NameRefusedError(f"the host did not provide {name or kind} this time")

    def _build_trees(self) -> None:
        """Make, from the last to the first, each node whose parts all come after it and are made.

        The writer numbers parts after what they are in; only cycles, and what comes before because it is shared with
        something earlier, are left to `_restore`.
        """
        begun = self._begun
        for number in range(len(self._plans) - 1, -1, -1):
            for part in self._plans[number].parts:
                inner = part[0]
                if type(inner) is int and (inner <= number or not begun[inner]):
                    break
            else:
                begun[number] = True
                self._make(number, self._plans[number])
                self._close(number)

    def _restore(self, root: Slot) -> None:
        """Make everything that can be reached from a root.

        The stack holds what is still to do, innermost last. A node is opened, made empty if it can hold itself, and
        closed when its parts are there. What is not ready then holds itself: it is closed when everything else is.
        """
        stack: list[tuple[_Step, int]] = []
        waiting: list[int] = []
        self._push([root], stack)
        while stack:
            step, number = stack.pop()
            if step is _Step.CLOSE:
                if self._is_ready(number):
                    self._close(number)
                elif number in self._open:
                    waiting.append(number)
                else:
                    self._failed(number, UnrestorableError("it is needed to rebuild itself"))
            elif step is _Step.MAKE or not self._begun[number]:
                self._begin(step, number, stack)
        self._close_waiting(waiting)

    def _close_waiting(self, waiting: list[int]) -> None:
        """Close what holds itself, inner before outer; what waits for itself for ever is closed as it is."""
        while waiting:
            still: list[int] = []
            for number in waiting:
                if self._is_ready(number, hash_now=True):
                    self._close(number)
                else:
                    still.append(number)
            if len(still) == len(waiting):
                number = still.pop(0)
                if any(self._peek(part) is _MISSING for part in self._plans[number].parts):
                    self._open.discard(number)
                else:
                    self._close(number)
                lost = Unrestored(self._plans[number].tag, "what it holds and what holds it each need the other first")
                self._withheld.append(([number], lost))
            waiting = still

    def _push(self, slots: Iterable[Slot], stack: list[tuple[_Step, int]]) -> None:
        for slot in slots:
            if type(slot) is list and type(slot[0]) is int and not self._begun[slot[0]]:
                stack.append((_Step.OPEN, slot[0]))

    def _begin(self, step: _Step, number: int, stack: list[tuple[_Step, int]]) -> None:
        self._begun[number] = True
        plan = self._plans[number]
        kind = plan.kind
        if (
            step is _Step.OPEN
            and plan.parts
            and isinstance(kind, MutableKind)
            and kind.head
            and isinstance(plan.slots, list)
        ):
            stack.append((_Step.MAKE, number))
            self._push(kind.head(plan.slots), stack)
            return
        self._make(number, plan)
        if plan.parts:
            stack.append((_Step.CLOSE, number))
            self._push(plan.parts, stack)
        else:
            self._close(number)

    def _make(self, number: int, plan: _Plan) -> None:
        kind = plan.kind
        if kind is None:
            self._withhold(number, f"this version does not know {plan.tag!r}, or its library is not installed")
        elif kind.code and not self.permissions.code:
            self._withhold(number, "it is code, and the file is not signed and trusted")
        elif isinstance(kind, MutableKind):
            try:
                self._objects[number] = kind.make(plan.slots, plan.data, self)
                self._open.add(number)
                self._unfilled += kind.defines_hash
            except Exception as error:  # noqa: BLE001  # see _failed
                self._failed(number, error)

    def _is_ready(self, number: int, *, hash_now: bool = False) -> bool:
        """Tell whether the parts of a node are there, and filled where it looks into them."""
        plan = self._plans[number]
        kind = plan.kind
        if isinstance(kind, MutableKind) and kind.hashes and self._unfilled and not hash_now:
            return False
        reads = kind is not None and kind.reads
        for part in plan.parts:
            inner = part[0]
            if type(inner) is int and (self._objects[inner] is _MISSING or (reads and inner in self._open)):
                return False
        return True

    def _close(self, number: int) -> None:
        plan = self._plans[number]
        kind = plan.kind
        made = self._objects[number]
        self._open.discard(number)
        try:
            values = self._values(plan)
            if isinstance(made, Unrestored) or kind is None:
                made.unrestored_payload = Payload(plan.tag, values, plan.data, self._blobs_in(plan.data))
            elif isinstance(kind, MutableKind):
                self._unfilled -= kind.defines_hash
                kind.fill(made, values, plan.data)
            else:
                self._objects[number] = kind.build(values, plan.data, self)
        except Exception as error:  # noqa: BLE001  # see _failed
            self._failed(number, error)

    def _values(self, plan: _Plan) -> Any:
        """Return the values of the slots, in a list or dict like theirs; theirs itself where they are all atoms."""
        if not plan.parts:
            return plan.slots
        peek = self._peek
        if isinstance(plan.slots, dict):
            return {key: peek(slot) if type(slot) is list else slot for key, slot in plan.slots.items()}
        return [peek(slot) if type(slot) is list else slot for slot in plan.slots]

    def _blobs_in(self, data: Any) -> dict[str, bytes]:
        blobs: dict[str, bytes] = {}
        todo = [data]
        while todo:
            match todo.pop():
                case {"blob": str() as name}:
                    blobs[name] = self._blob(name)
                case dict() as mapping:
                    todo.extend(mapping.values())
                case list() as items:
                    todo.extend(items)
        return blobs

    def _failed(self, number: int, error: Exception) -> None:
        """Put a placeholder in the place of a node that could not be rebuilt.

        Whatever goes wrong ends here, because the data is anybody's and so, in a trusted file, is the code of a class.
        Only a lack of memory and a heap that does not hang together end the reading.
        """
        if isinstance(error, (MemoryError, CheckpointDamagedError)):
            raise error
        known = isinstance(error, UnrestorableError)
        self._withhold(number, str(error) if known else f"rebuilding it failed: {type(error).__name__}: {error}"[:500])

    def _withhold(self, number: int, reason: str) -> None:
        tag, data = self._plans[number].tag, self._plans[number].data
        name = data["type"] if isinstance(data, dict) and isinstance(data.get("type"), str) else tag
        self._objects[number] = placeholder = Unrestored(name, reason)
        self._withheld.append(([number], placeholder))


_MISSING: Any = object()


def _plan(node: Any, size: int) -> _Plan:
    if isinstance(node, list) and 2 <= len(node) <= 3:
        tag, slots = node[0], node[1]
        if isinstance(tag, str) and (slots is None or isinstance(slots, (list, dict))):
            parts = children(slots)
            for part in parts:
                node_number(part, size)
            return _Plan(tag, kind_tagged(tag), slots, node[2] if len(node) == 3 else None, parts)
    raise CheckpointDamagedError(f"{str(node)[:80]} is not a node; expected [tag, slots, data].")


def _type_name(value: Any) -> str:
    kind = type(value)
    if kind is Unrestored:
        return str(value.unrestored_type)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _shown(value: Any) -> str:
    """Return a short text of a value, without its address: the same value is to give the same bytes each time."""
    try:
        return _ADDRESS.sub("", repr(value))[:200]
    except Exception:  # noqa: BLE001  # __repr__ is anybody's code
        return _ADDRESS.sub("", object.__repr__(value))
