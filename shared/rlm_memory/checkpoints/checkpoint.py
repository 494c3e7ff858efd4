"""The whole state of an RLM session at one moment, and the file that it is saved in."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rlm_memory.checkpoints.blobs import read_blob
from rlm_memory.checkpoints.codec import Surroundings, decode, encode
from rlm_memory.checkpoints.container import Container, Fetch, Keep, Key, Limits, pack, unpack
from rlm_memory.checkpoints.errors import (
    CheckpointDamagedError,
    CheckpointLimitError,
    CheckpointNotFoundError,
    UnsavableValueError,
)
from rlm_memory.checkpoints.files import make_directory, write_atomically
from rlm_memory.checkpoints.heap import Heap, Issue, digest, is_text
from rlm_memory.checkpoints.migrations import FORMAT_VERSION
from rlm_memory.checkpoints.names import Permissions
from rlm_memory.checkpoints.sources import Sources
from rlm_memory.display import Displayed, Table
from rlm_memory.errors import InvalidInputError

Unsavable = Literal["placeholder", "skip", "raise"]
"""What becomes of a value that cannot be saved: a placeholder that says why; its variable left out; an error."""

_FIELDS = ("working_memory", "pending_operations", "trajectory_events", "messages", "usage", "metadata")
_SCAFFOLD = frozenset(
    {"__builtins__", "__name__", "__doc__", "__loader__", "__spec__", "__package__", "__file__", "__cached__"}
)
"""Names that the interpreter keeps in a namespace: they are its own, and a file that sets them would be hostile."""


@dataclass(frozen=True, slots=True)
class Diff:
    """How the variables of one checkpoint differ from those of an older one: names, in order.

    `retyped` have another type; `changed` another value; `realiased` are equal, but share their parts with other
    variables than before.
    """

    added: list[str]
    removed: list[str]
    changed: list[str]
    retyped: list[str]
    realiased: list[str]

    def __bool__(self) -> bool:
        """Tell whether there is a difference."""
        return any((self.added, self.removed, self.changed, self.retyped, self.realiased))


@dataclass(slots=True)
class RLMCheckpoint(Displayed):
    """The state of an RLM session: the variables of its REPL, and all else that it needs to go on.

    `repl_state` maps names to values of any type. `issues` says, after `save` and after `load`, what of them is not
    what it was. `cost_so_far` is in US dollars. `version` is that of the file format.
    """

    session_id: str
    depth: int = 0
    repl_state: dict[str, Any] = field(default_factory=dict)
    working_memory: dict[str, Any] = field(default_factory=dict)
    pending_operations: list[Any] = field(default_factory=list)
    trajectory_events: list[Any] = field(default_factory=list)
    cost_so_far: float = 0.0
    turn: int = 0
    messages: list[Any] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    checkpoint_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    parent_id: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    version: str = FORMAT_VERSION
    metadata: dict[str, Any] = field(default_factory=dict)
    issues: list[Issue] = field(default_factory=list)
    size: int = field(default=0, compare=False)
    """Bytes of the file that this was last saved to or loaded from; 0 before that."""
    sources: Sources = field(default_factory=Sources, repr=False, compare=False)
    """The cells that made the functions and classes in `repl_state`."""

    def __post_init__(self) -> None:
        if not isinstance(self.session_id, str) or not self.session_id or not is_text(self.session_id):
            raise InvalidInputError(f"Expected a session id, a text that is not empty; got {self.session_id!r}.")
        if self.created_at.tzinfo is None:
            raise InvalidInputError("Expected created_at with a time zone; got one without.")
        if not math.isfinite(self.cost_so_far):
            raise InvalidInputError(f"Expected cost_so_far in US dollars; got {self.cost_so_far}.")

    def save(
        self,
        path: str | Path,
        *,
        trust: Key | None = None,
        unsavable: Unsavable = "placeholder",
        provided: Mapping[str, Any] | None = None,
        pickle: bool = False,
    ) -> Path:
        """Write one self-contained file and return its path; `issues` then lists what could not be saved.

        `trust` is the key that signs it: only then can functions and classes come back. `provided` are values that the
        host puts into the namespace itself, stored by name. `pickle` stores with pickle what nothing else can hold.

        Raises:
            UnsavableValueError: a value cannot be saved and `unsavable` is "raise"; nothing was written.
            CheckpointWriteError: the disk refused; a file that was there before is intact.
        """
        target = Path(path)
        content = self.to_bytes(trust=trust, unsavable=unsavable, provided=provided, pickle=pickle)
        make_directory(target.parent)
        write_atomically(target, content)
        return target

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        trust: Key | None = None,
        allow: Iterable[type] = (),
        provided: Mapping[str, Any] | None = None,
        namespace: dict[str, Any] | None = None,
        allow_pickle: bool = False,
        limits: Limits | None = None,
    ) -> RLMCheckpoint:
        """Return the checkpoint in a file, after every byte of it was checked; `issues` lists what did not come back.

        Without `trust`, the key it was signed with, the file is data: no code in it runs, and no class outside
        `allow` is rebuilt. `namespace` is the dict that becomes `repl_state`: it is emptied and filled.

        Raises:
            CheckpointNotFoundError: there is no such file.
            CheckpointDamagedError: its bytes are not the ones that were written.
            CheckpointSignatureError: it is signed with another key.
            CheckpointVersionError: it has another major version.
            CheckpointLimitError: it would need more memory than there is, or than `limits` allow.
        """
        source = Path(path)
        beside = source.parent.parent / "b"
        return cls.from_bytes(
            read_file(source),
            trust=trust,
            allow=allow,
            provided=provided,
            namespace=namespace,
            allow_pickle=allow_pickle,
            limits=limits,
            outside=lambda name: read_blob(beside, name, limits),
        )

    def to_bytes(
        self,
        *,
        trust: Key | None = None,
        unsavable: Unsavable = "placeholder",
        provided: Mapping[str, Any] | None = None,
        pickle: bool = False,
        store: Keep | None = None,
    ) -> bytes:
        """Return the bytes that `save` writes; with a `store`, large values are handed to it instead.

        Raises:
            UnsavableValueError: a value cannot be saved and `unsavable` is "raise".
        """
        names, refused = _savable_names(self.repl_state)
        around = Surroundings(namespace=self.repl_state, provided=provided or {}, sources=self.sources, pickle=pickle)
        heap, issues = self._encoded(names, around)
        issues = refused + issues
        if unsavable == "raise" and issues:
            raise UnsavableValueError("These values cannot be saved: " + "; ".join(map(str, issues)))
        if unsavable == "skip" and issues:
            lost = {issue.path for issue in issues}
            names = [name for name in names if name not in lost]
            heap, _ = self._encoded(names, around)
        self.issues = issues
        content = pack(self._manifest(names), heap, trust=trust, store=store)
        self.size = len(content)
        return content

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        *,
        trust: Key | None = None,
        allow: Iterable[type] = (),
        provided: Mapping[str, Any] | None = None,
        namespace: dict[str, Any] | None = None,
        allow_pickle: bool = False,
        limits: Limits | None = None,
        outside: Fetch | None = None,
    ) -> RLMCheckpoint:
        """Return the checkpoint in these bytes; see `load`. `outside` gives large values that are not in them."""
        state = {} if namespace is None else namespace
        try:
            container = unpack(data, trust=trust, limits=limits, outside=outside)
            permissions = Permissions.of(code=container.trusted, pickle=allow_pickle, allow=allow)
            checkpoint = cls._restored(container, permissions, state, provided or {})
        except MemoryError as error:
            raise CheckpointLimitError("The checkpoint needs more memory than there is.") from error
        checkpoint.size = len(data)
        return checkpoint

    def diff(self, other: RLMCheckpoint) -> Diff:
        """Return how the variables differ from those of `other`, the older one; identity counts, too."""
        mine, theirs = self._digests(), other._digests()
        common = [name for name in mine if name in theirs]
        retyped = [name for name in common if type(self.repl_state[name]) is not type(other.repl_state[name])]
        changed = [name for name in common if mine[name][0] != theirs[name][0] and name not in retyped]
        return Diff(
            added=[name for name in mine if name not in theirs],
            removed=[name for name in theirs if name not in mine],
            changed=changed,
            retyped=retyped,
            realiased=[
                name
                for name in common
                if name not in retyped
                and name not in changed
                and mine[name][1] & set(common) != theirs[name][1] & set(common)
            ],
        )

    def _digests(self) -> dict[str, tuple[str, set[str]]]:
        """Return, for each variable, a digest of its value and the names that share a part with it."""
        names, _ = _savable_names(self.repl_state)
        heap, _ = encode(
            [(name, self.repl_state[name]) for name in names],
            Surroundings(namespace=self.repl_state, sources=self.sources),
        )
        sharing: dict[int, set[str]] = {}
        for name, (segment, _) in zip(names, heap.roots, strict=True):
            sharing.setdefault(segment, set()).add(name)
        return {
            name: (digest(heap.segments[segment], slot), sharing[segment])
            for name, (segment, slot) in zip(names, heap.roots, strict=True)
        }

    def _encoded(self, names: list[str], around: Surroundings) -> tuple[Heap, list[Issue]]:
        variables = [(name, self.repl_state[name]) for name in names]
        return encode([*variables, *((each, getattr(self, each)) for each in _FIELDS)], around)

    def _manifest(self, names: list[str]) -> dict[str, Any]:
        return {
            "checkpoint_id": self.checkpoint_id,
            "parent_id": self.parent_id,
            "session_id": self.session_id,
            "depth": self.depth,
            "turn": self.turn,
            "created_at": self.created_at.isoformat(),
            "cost_so_far": self.cost_so_far,
            "variables": {name: type(self.repl_state[name]).__name__ for name in names},
            "issues": [[issue.path, issue.type, issue.reason, issue.repr] for issue in self.issues],
            "names": [*names, *_FIELDS],
        }

    @classmethod
    def _restored(
        cls, container: Container, permissions: Permissions, namespace: dict[str, Any], provided: Mapping[str, Any]
    ) -> RLMCheckpoint:
        manifest = container.manifest
        names = manifest.get("names")
        if (
            not isinstance(names, list)
            or len(names) != len(container.heap.roots)
            or tuple(names[-len(_FIELDS) :]) != _FIELDS
        ):
            raise CheckpointDamagedError("The manifest does not name the values that the file holds.")
        namespace.clear()
        around = Surroundings(namespace=namespace, provided=provided)
        values, issues = decode(container.heap, [str(name) for name in names], permissions=permissions, around=around)
        count = len(names) - len(_FIELDS)
        namespace.update(
            (name, value) for name, value in zip(names[:count], values, strict=False) if name not in _SCAFFOLD
        )
        fields = dict(zip(_FIELDS, values[count:], strict=True))
        notes = [Issue("(file)", "checkpoint", note, stage="load") for note in container.notes]
        try:
            return cls(
                repl_state=namespace,
                sources=around.sources,
                issues=[*notes, *_saved_issues(manifest, issues), *issues],
                created_at=datetime.fromisoformat(manifest["created_at"]),
                **{
                    key: manifest[key]
                    for key in ("session_id", "depth", "turn", "checkpoint_id", "parent_id", "version")
                },
                cost_so_far=manifest["cost_so_far"],
                **fields,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointDamagedError(f"The manifest lacks what a checkpoint has: {error}") from error

    def as_table(self) -> Table:
        """Return the variables with their types, and what is not what it was."""
        issues = {issue.path: issue.reason for issue in self.issues}
        names = [*self.repl_state, *(path for path in issues if path not in self.repl_state)]
        return Table(
            f"{self.session_id}, turn {self.turn}, {self.created_at:%Y-%m-%d %H:%M} UTC, ${self.cost_so_far:.4f}",
            ("variable", "type", "issue"),
            [(name, type(self.repl_state.get(name)).__name__ if name in self.repl_state else "", issues.get(name))
             for name in names],
        )  # fmt: skip


def _savable_names(state: dict[str, Any]) -> tuple[list[str], list[Issue]]:
    names: list[str] = []
    issues: list[Issue] = []
    for name in tuple(state):
        if not isinstance(name, str) or not is_text(name):
            issues.append(Issue(repr(name), type(name).__name__, "the name of a variable is a text without surrogates"))
        elif name not in _SCAFFOLD:
            names.append(name)
    return names, issues


def _saved_issues(manifest: dict[str, Any], found: list[Issue]) -> list[Issue]:
    """Return the issues of the time of saving that loading has not met again, as placeholders."""
    known = {issue.path for issue in found}
    return [Issue(*map(str, each)) for each in manifest["issues"] if each[0] not in known]


def read_file(path: Path) -> bytes:
    """Return the bytes of a file.

    Raises:
        CheckpointNotFoundError: there is none.
        CheckpointDamagedError: the disk cannot read it.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, ValueError) as error:  # ValueError: no file can have such a name
        raise CheckpointNotFoundError(f"There is no checkpoint at {path}.") from error
    except OSError as error:
        raise CheckpointDamagedError(f"{path} cannot be read: {error}") from error
