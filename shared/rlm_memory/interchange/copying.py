"""Copies a namespace from one engine to another, in batches that a killed process can be taken up after.

How far a copy is, is noted in its target, in the transaction of each batch: how many parts, and a hash of all of them.
Whoever goes on reads the source from its beginning and compares the hash before anything more is written. Of a finished
copy the hashes stay there, to tell which side has gone on since.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

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


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far a copy is that is under way: how many parts of the source, and the hash of their lines."""

    parts: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Finished:
    """What each kind of a copy hashed to when both sides were found to be the same."""

    hashes: Mapping[str, str]


_Note: TypeAlias = _Reached | _Finished | None


class _Tally:
    """Counts the parts that are done, and tells of it now and then."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._tell = progress or (lambda done, total: None)

    def advance(self, parts: int) -> None:
        before, self._done = self._done, self._done + parts
        if self._done // _BATCH > before // _BATCH:
            self._tell(min(self._done, self._total), self._total)

    def end(self) -> None:
        self._tell(self._total, self._total)


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
        InvalidInputError: The target has something else in it, the source has changed since the copy was begun, or one
            of the two since it was finished.
        EmbeddingMismatchError: The target has vectors of another model, length or form.
        StoreError: The two sides differ at the end.
    """
    with source.reading():
        tally = _Tally(2 * source.parts.count(), progress)
        before = _noted_of_what_is_there(target)
        if isinstance(before, _Finished) or (before is None and target.parts.count()):
            ours, is_written = _digest(source, tally), False
        else:
            _let_vectors_in(source, target)
            intake = Intake(target, namespace=namespace, origin=origin, now_ms=now_ms, note_new=None, begun=True)
            ours, is_written = _Writing(source, target, intake, tally).go_on(before), True
        with target.reading():
            theirs = _digest(target, tally)
    differences = _differences(ours, theirs)
    where = f"namespace {namespace!r} of {target.location}"
    if differences and is_written:
        raise StoreError(
            f"The copy in {where} is not what was copied ({differences}). Something else has written to it, or its "
            "disk has failed; copy to a store that is new."
        )
    if differences:
        what = _what_it_is(source.location, before, ours, theirs)
        raise InvalidInputError(f"{where[0].upper()}{where[1:]} has {what} ({differences}). {_advice(before)}")
    finished = _Finished(theirs.hashes)
    if finished != before:
        _put_note(target, finished)
    tally.end()
    return NamespaceCopy(namespace, ours.counts, ours.hashes, ours.chain.digest() == theirs.chain.digest())


def _digest(engine: Engine, tally: _Tally) -> Digest:
    """Return the digest of all that an engine's namespace holds."""
    digest = Digest()
    with closing(parts_of(engine)) as parts:
        for part in parts:
            digest.add(part, line_of(part))
            tally.advance(1)
    return digest


def _differences(ours: Digest, theirs: Digest) -> str:
    """Return in which kinds two digests differ, "" where they do not."""
    mine, other = ours.hashes, theirs.hashes
    return "; ".join(
        f"{kind}: {ours.counts.get(kind, 0)} there, {theirs.counts.get(kind, 0)} here"
        for kind in sorted(mine.keys() | other.keys())
        if mine.get(kind) != other.get(kind)
    )


def _what_it_is(source: str, before: _Note, ours: Digest, theirs: Digest) -> str:
    """Return what a namespace has in it that is not the same as the source."""
    if not isinstance(before, _Finished):
        return "something else in it"
    if theirs.hashes == before.hashes:
        return f"a finished copy in it, and {source} has gone on since"
    if ours.hashes == before.hashes:
        return "a finished copy in it that was written to since"
    return f"a finished copy in it, of something else, or it was written to since and {source} too"


def _advice(before: _Note) -> str:
    """Return what can be done where a copy would have to write over something."""
    if isinstance(before, _Finished):
        return "Copy to a store that is new, or bring nodes alone over: export, and import --nodes-only."
    return "Copy to a store, or a namespace, that is new."


def _let_vectors_in(source: Engine, target: Engine) -> None:
    """Let a target without vectors have those that come; refuse those of another model, length or form."""
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


class _Writing:
    """Writes to a target what it does not have yet of a source, and digests all of the source meanwhile."""

    def __init__(self, source: Engine, target: Engine, intake: Intake, tally: _Tally) -> None:
        self._source = source
        self._target = target
        self._intake = intake
        self._tally = tally
        self._digest = Digest()
        self._hashed = hashlib.sha256()
        self._parts = 0

    def go_on(self, begun: _Reached | None) -> Digest:
        """Write what comes after what was reached; return the digest of the source."""
        with closing(parts_of(self._source)) as parts:
            if begun is None:
                with self._target.transaction():
                    _expect_note(self._target, None)
                    _put_note(self._target, self._reached)
            else:
                self._pass_over(itertools.islice(parts, begun.parts), begun)
            for batch in _batches(parts):
                self._write(batch)
        return self._digest

    @property
    def _reached(self) -> _Reached:
        return _Reached(self._parts, self._hashed.hexdigest())

    def _pass_over(self, parts: Iterable[Moved], begun: _Reached) -> None:
        """Take note of what an earlier attempt has written, and make sure that it was this."""
        for part in parts:
            line = line_of(part)
            self._intake.pass_over(part, self._next())
            self._hashed.update(line)
            self._digest.add(part, line)
            self._tally.advance(1)
        if self._reached != begun:
            raise InvalidInputError(
                f"{self._source.location} has changed since the copy to {self._target.location} was begun, or that is "
                "a copy of something else; copy to a store that is new."
            )

    def _write(self, batch: list[tuple[Moved, bytes]]) -> None:
        with self._target.transaction():
            _expect_note(self._target, self._reached)
            for part, line in batch:
                self._intake.take(part, self._next(), len(line))
                self._hashed.update(line)
            self._intake.flush()
            _put_note(self._target, self._reached)
        for part, line in batch:
            self._digest.add(part, line)
        self._tally.advance(len(batch))

    def _next(self) -> str:
        """Count one more part; return what an error calls it."""
        self._parts += 1
        return f"part {self._parts} of {self._source.location}"


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


# -- the note in the target -------------------------------------------------------------------------------------------


def _noted(target: Engine) -> _Note:
    text = target.key_values.get(COPY_NOTES, [_NOTE]).get(_NOTE)
    if text is None:
        return None
    note = json.loads(text)
    return _Finished(note["finished"]) if "finished" in note else _Reached(note["parts"], note["sha256"])


def _noted_of_what_is_there(target: Engine) -> _Note:
    """Return the note; that of a finished copy of which nothing is there any more is taken away."""
    note = _noted(target)
    if isinstance(note, _Finished) and target.parts.count() == 1:  # which is the note
        target.key_values.delete(COPY_NOTES, [_NOTE])
        return None
    return note


def _put_note(target: Engine, note: _Reached | _Finished) -> None:
    document = (
        {"finished": dict(note.hashes)} if isinstance(note, _Finished) else {"parts": note.parts, "sha256": note.sha256}
    )
    target.key_values.put(COPY_NOTES, {_NOTE: json.dumps(document)})


def _expect_note(target: Engine, before: _Note) -> None:
    """Refuse to write where somebody else has gone on with the copy, or with anything."""
    if _noted(target) != before or (before is None and target.parts.count()):
        raise InvalidInputError(f"Somebody else is writing to {target.location}; copy to a store that is new.")
