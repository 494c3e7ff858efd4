"""Copies a namespace from one engine to another, in batches that a killed process can be taken up after.

How far a copy is, is noted in its target, in the transaction of each batch: how many parts, and a hash of all of them.
Whoever goes on reads the source from its beginning and compares the hash before anything more is written.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from rlm_memory.errors import EmbeddingMismatchError, InvalidInputError, StoreError
from rlm_memory.interchange.intake import Intake
from rlm_memory.interchange.lines import NAMES, Moved, SweepPart, line_of, unnumbered
from rlm_memory.interchange.stream import COPY_NOTES, parts_of
from rlm_memory.ports import Engine, Progress
from rlm_memory.records import LogEntry

_NOTE: Final = "progress"
_BATCH: Final = 500
_BATCH_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class NamespaceCopy:
    """A namespace that is the same in both places.

    `counts` tells how many there are of each kind: nodes, log entries, messages and so on. `hashes` are those of their
    contents, the same on both sides. `log_kept` tells whether the entries of the promotion log have kept their numbers
    and hashes; else they are chained anew, in the same order.
    """

    namespace: str
    counts: Mapping[str, int]
    hashes: Mapping[str, str]
    log_kept: bool


class Digest:
    """Counts and hashes of parts by their kind."""

    def __init__(self) -> None:
        self._hashed: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.chain = hashlib.sha256()

    def add(self, part: Moved, line: bytes) -> None:
        """Take in a part and the line that it makes; when a namespace was swept is its store's own affair."""
        if isinstance(part, SweepPart):
            return
        kind = NAMES.get(type(part), "log")
        if isinstance(part, LogEntry):  # what holds wherever it is moved
            self.chain.update(line)
            line = line_of(unnumbered(part))
        if kind not in self._hashed:
            self._hashed[kind] = hashlib.sha256()
            self.counts[kind] = 0
        self._hashed[kind].update(line)
        self.counts[kind] += 1

    @property
    def hashes(self) -> dict[str, str]:
        """The hash of each kind."""
        return {kind: hashed.hexdigest() for kind, hashed in self._hashed.items()}


def copy(
    source: Engine, target: Engine, *, origin: str, namespace: str, now_ms: int, progress: Progress | None
) -> NamespaceCopy:
    """Copy the namespace of one engine into that of another, or go on with that, and compare both sides at the end.

    Args:
        source: Read in one state, however long it takes.
        target: A namespace with nothing in it, one in which a copy of the same source was begun, or a finished copy.
        origin: The name of the source's namespace.
        namespace: The name of the target's.
        now_ms: The time, in milliseconds.
        progress: Called with (done, total) parts, those of the comparison counted too.

    Raises:
        InvalidInputError: The target has something else in it, or the source has changed since the copy was begun.
        EmbeddingMismatchError: The target has vectors of another model, length or form.
        StoreError: The two sides differ at the end.
    """
    tell = progress or (lambda done, total: None)
    with source.reading():
        total = 2 * source.parts.count()
        ours = Digest()
        begun = _noted(target)
        holds = target.parts.count()
        done = 0
        if holds and begun is None:  # a copy that was killed when all was done, perhaps
            done = _digest(source, ours, 0, total, tell)
        else:
            _adopt(source, target)
            intake = Intake(target, namespace=namespace, origin=origin, now_ms=now_ms, note_new=None, begun=True)
            with closing(parts_of(source)) as parts:
                done = _write(parts, source, target, intake, begun, ours, lambda done: _tell(tell, done, total))
        theirs = Digest()
        with target.reading():
            _digest(target, theirs, done, total, tell)
        _compare(target, namespace, ours, theirs, new=begun is not None or not holds)
        if _noted(target) is not None:
            target.key_values.delete(COPY_NOTES, [_NOTE])
        tell(total, total)
    return NamespaceCopy(namespace, ours.counts, ours.hashes, ours.chain.digest() == theirs.chain.digest())


def _digest(engine: Engine, digest: Digest, done: int, total: int, tell: Progress) -> int:
    """Take in all that an engine's namespace holds; return how many parts are done then."""
    with closing(parts_of(engine)) as parts:
        for part in parts:
            digest.add(part, line_of(part))
            done += 1
            _tell(tell, done, total)
    return done


def _tell(tell: Progress, done: int, total: int) -> None:
    if done % _BATCH == 0:
        tell(min(done, total), total)


def _noted(target: Engine) -> dict[str, Any] | None:
    text = target.key_values.get(COPY_NOTES, [_NOTE]).get(_NOTE)
    return None if text is None else json.loads(text)


def _adopt(source: Engine, target: Engine) -> None:
    ours, theirs = source.identity(), target.identity()
    if ours.dimensions is None:
        return
    # What int8 and bit mean is an engine's own. Rounded once more in the same way, or not at all, nothing is lost.
    same_form = type(source) is type(target) and theirs.embedding_storage == ours.embedding_storage
    if theirs.embedding_storage != "float32" and not same_form:
        raise EmbeddingMismatchError(
            f"{target.location} keeps vectors as {theirs.embedding_storage}, to which those of {source.location} "
            "would be rounded; copy to a store that is new."
        )
    if theirs.dimensions is None:
        target.adopt(model=ours.model, dimensions=ours.dimensions)
    elif (theirs.model, theirs.dimensions) != (ours.model, ours.dimensions):
        raise EmbeddingMismatchError(
            f"{target.location} has vectors of {theirs.model!r} ({theirs.dimensions} dimensions), {source.location} "
            f"those of {ours.model!r} ({ours.dimensions} dimensions); copy to a store that is new."
        )


def _write(
    parts: Iterator[Moved],
    source: Engine,
    target: Engine,
    intake: Intake,
    begun: dict[str, Any] | None,
    ours: Digest,
    tell: Any,
) -> int:
    """Write what the target does not have yet of the source; return how many parts there are."""
    hashed = hashlib.sha256()
    done = 0
    if begun is None:
        _note(target, None, done, hashed)
    for part in itertools.islice(parts, 0 if begun is None else begun["parts"]):
        line = line_of(part)
        ours.add(part, line)
        hashed.update(line)
        done += 1
        intake.pass_over(part, f"part {done} of {source.location}")
        tell(done)
    if begun is not None and begun != _note_of(done, hashed):
        raise InvalidInputError(
            f"{source.location} has changed since the copy to {target.location} was begun, or that is a copy of "
            "something else; copy to a store that is new."
        )
    for batch in _batches(parts):
        with target.transaction():
            before = _note_of(done, hashed)
            _expect_noted(target, before)
            for part, line in batch:
                done += 1
                intake.take(part, f"part {done} of {source.location}", len(line))
                hashed.update(line)
            intake.flush()
            _note(target, before, done, hashed)
        for part, line in batch:
            ours.add(part, line)
        tell(done)
    return done


def _batches(parts: Iterator[Moved]) -> Iterator[list[tuple[Moved, bytes]]]:
    batch: list[tuple[Moved, bytes]] = []
    size = 0
    for part in parts:
        line = line_of(part)
        batch.append((part, line))
        size += len(line)
        if len(batch) == _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _note_of(done: int, hashed: Any) -> dict[str, Any]:
    return {"parts": done, "sha256": hashed.hexdigest()}


def _note(target: Engine, before: dict[str, Any] | None, done: int, hashed: Any) -> None:
    """Note how far the copy is, if nobody else has gone on with it."""
    with target.transaction():
        _expect_noted(target, before)
        target.key_values.put(COPY_NOTES, {_NOTE: json.dumps(_note_of(done, hashed))})


def _expect_noted(target: Engine, before: dict[str, Any] | None) -> None:
    if _noted(target) != before or (before is None and target.parts.count()):
        raise InvalidInputError(f"Somebody else is writing to {target.location}; copy to a store that is new.")


def _compare(target: Engine, namespace: str, ours: Digest, theirs: Digest, *, new: bool) -> None:
    kinds = sorted(ours.counts.keys() | theirs.counts.keys())
    mine, other = ours.hashes, theirs.hashes
    differing = [
        f"{kind}: {ours.counts.get(kind, 0)} there, {theirs.counts.get(kind, 0)} here"
        for kind in kinds
        if mine.get(kind) != other.get(kind)
    ]
    if differing and not new:
        raise InvalidInputError(
            f"Namespace {namespace!r} of {target.location} has something else in it ({'; '.join(differing)}); copy to "
            "a store, or a namespace, that is new."
        )
    if differing:
        raise StoreError(
            f"The copy of namespace {namespace!r} in {target.location} is not what was copied "
            f"({'; '.join(differing)}). Something else has written to it, or its disk has failed; copy to a "
            "store that is new."
        )
