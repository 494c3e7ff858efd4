"""Checkpoints of many sessions in one folder: in order, shared between processes, safe against a crash at any moment.

```
<root>/<session>/ck/<sequence>-<checkpoint id>.rlmc   one file a checkpoint
<root>/<session>/ck/<sequence>-<checkpoint id>.pin    why it is kept for ever
<root>/<session>/b/<sha256>.<kind>                    large values, each once, however many checkpoints have it
<root>/<session>/journal.jsonl                        operations since then (see `journal`)
<root>/<session>/lock                                 held by whoever writes
```

The order is the sequence number, given under the lock: no clock is asked. A value is on the disk before the checkpoint
that names it. What cannot be read is set aside as `.corrupt`, reported, and never deleted.
"""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rlm_memory.checkpoints.blobs import blob_names, read_blob, write_blob
from rlm_memory.checkpoints.checkpoint import RLMCheckpoint, Unsavable, read_file
from rlm_memory.checkpoints.container import Key, Limits, peek, repack, unpack
from rlm_memory.checkpoints.errors import (
    CheckpointBusyError,
    CheckpointDamagedError,
    CheckpointNotFoundError,
    CheckpointWriteError,
)
from rlm_memory.checkpoints.files import (
    directory_name,
    make_directory,
    sweep_temporaries,
    sync_directory,
    write_atomically,
)
from rlm_memory.checkpoints.heap import Issue
from rlm_memory.checkpoints.journal import Journal
from rlm_memory.errors import CheckpointError, InvalidInputError

_INFO = ("session_id", "checkpoint_id", "parent_id", "turn", "depth", "cost_so_far", "signed", "variables")
_SUFFIX, _CORRUPT, _PIN = ".rlmc", ".corrupt", ".pin"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """What the manifest of a stored checkpoint says; its values were not read.

    `size` is the file's, in bytes, without the large values beside it. `pinned` is why it is kept, or None.
    """

    session_id: str
    checkpoint_id: str
    parent_id: str | None
    sequence: int
    turn: int
    depth: int
    created_at: datetime
    cost_so_far: float
    size: int
    signed: bool
    variables: Mapping[str, str]
    issues: int
    pinned: str | None
    path: Path


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one file of a session; `problem` is None where it is sound."""

    path: Path
    problem: str | None


class CheckpointStore:
    """Keeps checkpoints in a folder that only its owner can read.

    `trust` is the key that signs what is written and verifies what is read; `allow`, `provided`, `unsavable`
    and `limits` are those of `RLMCheckpoint`; `pickle` is its `pickle` when it writes and its `allow_pickle` when it
    reads. `lock_timeout` is in seconds.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        trust: Key | None = None,
        allow: Iterable[type] = (),
        provided: Mapping[str, Any] | None = None,
        pickle: bool = False,
        unsavable: Unsavable = "placeholder",
        limits: Limits | None = None,
        lock_timeout: float = 30.0,
    ) -> None:
        self.root = Path(root)
        self._trust = trust
        self._allow = tuple(allow)
        self._provided = dict(provided or {})
        self._pickle = pickle
        self._unsavable: Unsavable = unsavable
        self._limits = limits
        self._lock_timeout = lock_timeout

    def put(self, checkpoint: RLMCheckpoint) -> Path:
        """Write a checkpoint as the newest of its session and return the path of its file.

        When this returns, it survives a loss of power. Large values that an earlier checkpoint has are not written
        again.

        Raises:
            CheckpointWriteError: the disk refused; the checkpoints before are intact.
            CheckpointBusyError: another process held the session for longer than the time-out.
            UnsavableValueError: a value cannot be saved, and the store was told to raise.
        """
        blobs: dict[str, bytes] = {}
        content = checkpoint.to_bytes(
            trust=self._trust,
            unsavable=self._unsavable,
            provided=self._provided,
            pickle=self._pickle,
            store=blobs.__setitem__,
        )
        folder = self._folder(checkpoint.session_id)
        for each in (folder / "ck", folder / "b"):
            make_directory(each)
        with self.locked(checkpoint.session_id):
            for each in (folder, folder / "ck", folder / "b"):
                sweep_temporaries(each)
            for name, blob in blobs.items():
                write_blob(folder / "b", name, blob)
            path = folder / "ck" / f"{self._next_sequence(folder):08d}-{checkpoint.checkpoint_id}{_SUFFIX}"
            write_atomically(path, content)
        return path

    def get(
        self, checkpoint_id: str, *, session_id: str | None = None, namespace: dict[str, Any] | None = None
    ) -> RLMCheckpoint:
        """Return the checkpoint with this id; `session_id` spares the search through all sessions.

        Raises:
            CheckpointNotFoundError: no session has it.
            CheckpointDamagedError: its file is damaged.
        """
        return self.load(self._path_of(checkpoint_id, session_id), namespace=namespace)

    def load(self, path: str | Path, *, namespace: dict[str, Any] | None = None) -> RLMCheckpoint:
        """Return the checkpoint in a file, in this store or anywhere, with the trust and the limits of the store.

        Raises:
            CheckpointNotFoundError: there is no such file.
            CheckpointDamagedError: it is damaged, or is not of the session in whose folder it lies.
        """
        file = Path(path)
        checkpoint = RLMCheckpoint.load(
            file,
            trust=self._trust,
            allow=self._allow,
            provided=self._provided,
            namespace=namespace,
            allow_pickle=self._pickle,
            limits=self._limits,
        )
        folder = file.absolute().parent.parent
        if folder.parent == self.root.absolute() and folder.name != directory_name(checkpoint.session_id):
            raise CheckpointDamagedError(f"{file} is of the session {checkpoint.session_id!r}, which lives elsewhere.")
        return checkpoint

    def latest(
        self, session_id: str, *, strict: bool = False, namespace: dict[str, Any] | None = None
    ) -> RLMCheckpoint:
        """Return the newest checkpoint of a session that is sound.

        A damaged one on the way is set aside as `.corrupt` and reported in the issues of the one that is returned;
        with `strict` it raises instead.

        Raises:
            CheckpointNotFoundError: the session has no checkpoint, or none that is sound.
            CheckpointDamagedError: the newest is damaged, and `strict` is set.
        """
        issues: list[Issue] = []
        for path in reversed(self._paths(session_id)):
            try:
                checkpoint = self.load(path, namespace=namespace)
            except CheckpointDamagedError as error:
                if strict:
                    raise
                issues.append(Issue(path.name, "checkpoint", f"set aside as damaged: {error}", stage="load"))
                self._set_aside(session_id, path)
                continue
            checkpoint.issues[:0] = issues
            return checkpoint
        raise CheckpointNotFoundError(
            f"The session {session_id!r} has no checkpoint" + (f" that is sound: {issues[0]}" if issues else ".")
        )

    def list(self, session_id: str | None = None) -> builtins.list[CheckpointInfo]:
        """Return what there is, of one session or of all, oldest first; damaged files are left out (see `verify`)."""
        folders = [self._folder(session_id)] if session_id is not None else self._folders()
        found: list[CheckpointInfo] = []
        for folder in folders:
            for path in _checkpoint_paths(folder):
                try:
                    found.append(self._info(path))
                except CheckpointError:
                    continue
        return found

    def sessions(self) -> builtins.list[str]:
        """Return the ids of the sessions that have a checkpoint, sorted."""
        return sorted({info.session_id for info in self.list()})

    def fork(self, checkpoint_id: str, session_id: str) -> RLMCheckpoint:
        """Begin a new session with the state of a checkpoint, which is its parent and is kept from then on.

        Raises:
            CheckpointNotFoundError: no session has the checkpoint.
            InvalidInputError: there is a session with the new id already.
        """
        source = self._path_of(checkpoint_id, None)
        if self._paths(session_id):
            raise InvalidInputError(f"There is a session {session_id!r} already; fork to an id that is free.")
        checkpoint = self.load(source)
        self.pin(checkpoint_id, reason=f"forked as {session_id}")
        fork = replace(
            checkpoint,
            session_id=session_id,
            parent_id=checkpoint.checkpoint_id,
            checkpoint_id=os.urandom(16).hex(),
            # its journal begins here, and has nothing of the other one's
            metadata={
                **checkpoint.metadata,
                "forked_from": checkpoint.session_id,
                "journal": {"turn": 0, "usage": 0},
            },
        )
        self.put(fork)
        return fork

    def pin(self, checkpoint_id: str, *, reason: str = "pinned") -> None:
        """Keep a checkpoint when others are pruned.

        Raises:
            CheckpointNotFoundError: no session has it.
        """
        path = self._path_of(checkpoint_id, None)
        write_atomically(path.with_suffix(_PIN), json.dumps({"reason": reason}).encode())

    def unpin(self, checkpoint_id: str) -> None:
        """Let a checkpoint be pruned again.

        Raises:
            CheckpointNotFoundError: no session has it.
        """
        self._path_of(checkpoint_id, None).with_suffix(_PIN).unlink(missing_ok=True)

    def prune(self, session_id: str, *, keep: int = 3) -> builtins.list[str]:
        """Remove all but the newest `keep` checkpoints, the pinned ones and those that were forked; return their ids.

        Large values that no remaining checkpoint has go, too; the journal stays whole.
        """
        if keep < 1:
            raise InvalidInputError(f"Expected to keep at least 1 checkpoint; got keep={keep}.")
        with self.locked(session_id):
            paths = self._paths(session_id)
            pruned = [path for path in paths[:-keep] if not path.with_suffix(_PIN).exists()]
            for path in pruned:
                path.unlink()
            if pruned:
                sync_directory(pruned[0].parent)
            self._sweep_blobs(self._folder(session_id))
        return [path.stem.partition("-")[2] for path in pruned]

    def verify(self, session_id: str | None = None) -> builtins.list[Finding]:
        """Read every file of a session, or of all, to the last byte, and return what was found.

        Raises:
            CheckpointNotFoundError: there is no such session.
        """
        folders = [self._folder(session_id)] if session_id is not None else self._folders()
        if session_id is not None and not (folders[0] / "ck").is_dir():
            raise CheckpointNotFoundError(f"There is no session {session_id!r} in {self.root}.")
        return [finding for folder in folders for finding in self._findings(folder)]

    def export(self, checkpoint_id: str, path: str | Path) -> Path:
        """Write a checkpoint to one self-contained file and return its path; its signature stays valid.

        Raises:
            CheckpointNotFoundError: no session has it.
            CheckpointDamagedError: it, or a large value of it, is damaged.
            CheckpointWriteError: the disk refused.
        """
        source = self._path_of(checkpoint_id, None)
        data = read_file(source)
        target = Path(path)
        write_atomically(target, repack(data, lambda name: read_blob(source.parent.parent / "b", name, self._limits)))
        return target

    def journal(self, session_id: str) -> Journal:
        """Return the journal of a session."""
        return Journal(self._folder(session_id) / "journal.jsonl", lambda: self.locked(session_id))

    @contextmanager
    def locked(self, session_id: str) -> Iterator[None]:
        """Hold a session while something is written to it; readers need no lock.

        Raises:
            CheckpointBusyError: another process held it for longer than the time-out.
        """
        folder = self._folder(session_id)
        make_directory(folder)
        lock = FileLock(folder / "lock", timeout=self._lock_timeout, mode=0o600)
        try:
            with lock:
                yield
        except Timeout as error:
            raise CheckpointBusyError(
                f"The session {session_id!r} was held by another process for {self._lock_timeout} seconds."
            ) from error
        except PermissionError as error:
            raise CheckpointWriteError(f"The session {session_id!r} cannot be locked: {error}.") from error

    def _folder(self, session_id: str) -> Path:
        if not isinstance(session_id, str) or not session_id:
            raise InvalidInputError(f"Expected a session id, a text that is not empty; got {session_id!r}.")
        return self.root / directory_name(session_id)

    def _folders(self) -> builtins.list[Path]:
        return sorted(path for path in self.root.iterdir() if (path / "ck").is_dir()) if self.root.is_dir() else []

    def _paths(self, session_id: str) -> builtins.list[Path]:
        return _checkpoint_paths(self._folder(session_id))

    def _path_of(self, checkpoint_id: str, session_id: str | None) -> Path:
        folders = [self._folder(session_id)] if session_id is not None else self._folders()
        for folder in folders:
            for path in _checkpoint_paths(folder):
                if path.stem.partition("-")[2] == checkpoint_id:
                    return path
        raise CheckpointNotFoundError(f"There is no checkpoint {checkpoint_id!r} in {self.root}.")

    def _info(self, path: Path) -> CheckpointInfo:
        data = read_file(path)
        manifest = peek(data, limits=self._limits)
        pin = path.with_suffix(_PIN)
        try:
            return CheckpointInfo(
                **{key: manifest[key] for key in _INFO},
                sequence=int(path.stem.partition("-")[0]),
                created_at=datetime.fromisoformat(manifest["created_at"]),
                size=len(data),
                issues=len(manifest["issues"]),
                pinned=json.loads(pin.read_bytes())["reason"] if pin.exists() else None,
                path=path,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointDamagedError(f"The manifest of {path} lacks what a checkpoint has: {error}") from error

    def _next_sequence(self, folder: Path) -> int:
        """Return one more than any checkpoint has or had, the damaged ones included."""
        numbers = [int(path.name[:8]) for path in (folder / "ck").iterdir() if path.name[:8].isdecimal()]
        return max(numbers, default=0) + 1

    def _set_aside(self, session_id: str, path: Path) -> None:
        try:
            with self.locked(session_id):
                path.replace(path.with_suffix(path.suffix + _CORRUPT))
        except (OSError, CheckpointError):  # the folder is read-only, or busy: the report says it all the same
            return

    def _sweep_blobs(self, folder: Path) -> None:
        """Remove the values that no checkpoint names. If one cannot be read, nothing is removed: it may name any."""
        named: set[str] = set()
        for path in _checkpoint_paths(folder):
            try:
                members = peek(read_file(path), limits=self._limits)["members"]
            except CheckpointError:
                return
            named.update(member.removeprefix("b/") for member in members)
        for name, path in blob_names(folder / "b").items():
            if name not in named:
                path.unlink(missing_ok=True)

    def _findings(self, folder: Path) -> Iterator[Finding]:
        for path in sorted((folder / "ck").iterdir()):
            if path.suffix == _CORRUPT:
                yield Finding(path, "it was set aside as damaged")
            elif path.suffix == _SUFFIX:
                try:
                    unpack(
                        read_file(path),
                        trust=self._trust,
                        limits=self._limits,
                        outside=lambda name: read_blob(folder / "b", name, self._limits),
                    )
                except CheckpointError as error:
                    yield Finding(path, str(error))
                else:
                    yield Finding(path, None)
        journal = Journal(folder / "journal.jsonl")
        yield from (Finding(journal.path, problem) for problem in journal.problems())


def _checkpoint_paths(folder: Path) -> builtins.list[Path]:
    """Return the checkpoints of a session, oldest first: their names begin with their sequence number."""
    return sorted((folder / "ck").glob(f"*{_SUFFIX}"))
