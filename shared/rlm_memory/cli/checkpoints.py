"""The commands of `rlm-memory checkpoints`: a folder of checkpoints is read as data, and none of it is run."""

from __future__ import annotations

import os
import reprlib
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rlm_memory.cli import output
from rlm_memory.errors import InvalidInputError

if TYPE_CHECKING:
    from rlm_memory.checkpoints import CheckpointInfo, CheckpointStore, RLMCheckpoint

app = typer.Typer(help="Look at the checkpoints of sessions. Nothing that is stored in them is run.")

_Root: TypeAlias = Annotated[Path, typer.Argument(metavar="ROOT", help="The folder of a CheckpointStore.")]
_WHICH = "The id of a checkpoint, its beginning, or a session: then its newest one."
_Which: TypeAlias = Annotated[str, typer.Argument(metavar="CHECKPOINT", help=_WHICH)]
_SHORTEST = 4
"""Fewer letters of an id would be ambiguous sooner or later."""

_preview = reprlib.Repr()
_preview.maxstring = _preview.maxother = 120


@app.command("list")
def list_checkpoints(
    ctx: typer.Context,
    root: _Root,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only those of this session.")] = None,
) -> None:
    """List checkpoints, oldest first; damaged ones are left out, see verify."""
    found = _store(root).list(session)
    if ctx.obj.json:
        for info in found:
            output.print_json(_document(info))
        return
    output.print_rows(
        ["turn", "variables", "issues", "cost", "size", "created", "id", "session"],
        [
            [
                str(info.turn),
                str(len(info.variables)),
                str(info.issues),
                _dollars(info.cost_so_far),
                output.size(info.size),
                info.created_at.astimezone().isoformat(" ", "seconds"),
                info.checkpoint_id,
                f"{info.session_id} (kept: {info.pinned})" if info.pinned else info.session_id,
            ]
            for info in found
        ],
        numbers=5,
    )
    if not found:
        output.note(f"There is no checkpoint in {root}; expected the folder of a CheckpointStore.")


@app.command()
def show(ctx: typer.Context, root: _Root, checkpoint: _Which) -> None:
    """Show a checkpoint: its variables, and what of them is not what it was."""
    store = _store(root)
    info = _chosen(store, checkpoint)
    loaded = store.load(info.path)
    variables = [
        {"name": name, "type": type, "value": _value(loaded.repl_state.get(name))}
        for name, type in info.variables.items()
    ]
    # a function is not restored here because nobody trusts the file, which is no fault of the checkpoint
    issues = [asdict(issue) for issue in loaded.issues if _source(loaded.repl_state.get(issue.path)) is None]
    if ctx.obj.json:
        output.print_json(
            {
                **_document(info),
                "variables": variables,
                "issues": issues,
                "usage": loaded.usage,
                "messages": len(loaded.messages),
                "events": len(loaded.trajectory_events),
                "pending_operations": [_pending(each) for each in loaded.pending_operations],
                "working_memory": {str(name): _value(value) for name, value in loaded.working_memory.items()},
            }
        )
        return
    output.print_pairs(
        [
            ("checkpoint", info.checkpoint_id),
            ("parent", info.parent_id or "none"),
            ("session", info.session_id),
            ("turn", str(info.turn)),
            ("depth", str(info.depth)),
            ("created", info.created_at.astimezone().isoformat(" ", "seconds")),
            ("cost", _dollars(info.cost_so_far)),
            ("size", output.size(info.size)),
            ("signed", "yes" if info.signed else "no: functions and classes do not come back from it"),
            ("kept", info.pinned or "until it is pruned"),
            ("messages", str(len(loaded.messages))),
            ("events", str(len(loaded.trajectory_events))),
            *(("pending", _pending(each)) for each in loaded.pending_operations),
            *(("working memory", f"{name}: {_value(value)}") for name, value in loaded.working_memory.items()),
            *(("issue", f"{issue['path']} ({issue['type']}): {issue['reason']}") for issue in issues),
        ]
    )
    print()
    output.print_rows(
        ["variable", "type", "value"], [[each["name"], each["type"], each["value"]] for each in variables]
    )


@app.command()
def diff(
    ctx: typer.Context,
    root: _Root,
    old: Annotated[str, typer.Argument(metavar="OLD", help=_WHICH)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The same.")],
) -> None:
    """Tell which variables differ between two checkpoints."""
    store = _store(root)
    before, after = (store.load(_chosen(store, which).path) for which in (old, new))
    changes = asdict(after.diff(before))
    if ctx.obj.json:
        output.print_json(changes)
    elif not any(changes.values()):
        print("The variables are the same.")
    else:
        output.print_rows(
            ["change", "variable", "before", "after"],
            [
                [change, name, *(_value_of(name, each) for each in (before, after))]
                for change, names in changes.items()
                for name in names
            ],
        )


@app.command()
def verify(
    ctx: typer.Context,
    root: _Root,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only the files of this session.")] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The key that signed them: then signatures are checked, too.")
    ] = None,
) -> None:
    """Read every checkpoint to its last byte; the exit code is 1 if one is damaged, 2 if there is none."""
    from rlm_memory.checkpoints import CheckpointNotFoundError

    try:
        findings = _store(root, key_file).verify(session)
    except CheckpointNotFoundError as error:
        raise InvalidInputError(f"{error} {_how_to_list(root)}") from error
    if not findings:
        raise InvalidInputError(f"There is no checkpoint in {root}; expected the folder of a CheckpointStore.")
    problems = [finding for finding in findings if finding.problem is not None]
    if ctx.obj.json:
        output.print_json(
            {
                "ok": not problems,
                "files": len(findings),
                "problems": [{"path": str(each.path), "problem": each.problem} for each in problems],
            }
        )
    elif problems:
        output.print_rows(["file", "what is wrong"], [[str(each.path), str(each.problem)] for each in problems])
    else:
        print(f"{output.plural(len(findings), 'file')} read: all sound.")
    if problems:
        raise typer.Exit(1)


@app.command()
def export(
    ctx: typer.Context,
    root: _Root,
    checkpoint: _Which,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not be there.")],
) -> None:
    """Write a checkpoint to one file that needs nothing beside it; its signature stays valid."""
    store = _store(root)
    info = _chosen(store, checkpoint)
    if path.exists():
        raise InvalidInputError(f"{path} is there already; name a file that is not.")
    if not os.access(path.parent, os.W_OK):
        raise InvalidInputError(f"{path}: the file cannot be made; check that its folder exists and may be written.")
    store.export(info.checkpoint_id, path)
    if ctx.obj.json:
        output.print_json({"checkpoint_id": info.checkpoint_id, "path": str(path), "bytes": path.stat().st_size})
    else:
        print(output.printable(f"The checkpoint {info.checkpoint_id} is written to {path}."))


def _store(root: Path, key_file: Path | None = None) -> CheckpointStore:
    from rlm_memory.checkpoints import CheckpointStore  # a fifth of a second that the other commands need not wait

    if not root.is_dir():
        raise InvalidInputError(f"There is no folder {root}; expected that of a CheckpointStore.")
    try:
        return CheckpointStore(root, trust=None if key_file is None else key_file.read_bytes().strip())
    except OSError as error:
        raise InvalidInputError(f"Cannot read the key {key_file}: {error.strerror}.") from error


def _how_to_list(root: Path) -> str:
    return f"List them with: rlm-memory checkpoints list {shlex.quote(str(root))}"


def _chosen(store: CheckpointStore, which: str) -> CheckpointInfo:
    """Return the checkpoint that somebody means."""
    found = store.list()
    of_session = [info for info in found if info.session_id == which]
    by_id = [info for info in found if info.checkpoint_id == which]
    if not by_id and len(which) >= _SHORTEST:
        by_id = [info for info in found if info.checkpoint_id.startswith(which)]
    matching = by_id or of_session[-1:]
    if not matching:
        raise InvalidInputError(f"No checkpoint and no session {which!r} in {store.root}. {_how_to_list(store.root)}")
    if len(matching) > 1:
        raise InvalidInputError(
            f"{output.plural(len(matching), 'checkpoint')} begin with {which!r}; give more letters."
        )
    return matching[0]


def _document(info: CheckpointInfo) -> dict[str, Any]:
    return {**asdict(info), "variables": dict(info.variables), "path": str(info.path)}


def _source(value: Any) -> str | None:
    """Return the text of a function or class that is not restored here, or None."""
    from rlm_memory.checkpoints import Unrestored

    return value.unrestored_source if isinstance(value, Unrestored) else None


def _value(value: Any) -> str:
    """Return what a value looks like in a line; of a function or class, the first line of its cell."""
    source = _source(value)
    if source is not None:
        return source.strip().partition("\n")[0]
    try:
        return _preview.repr(value)
    except Exception as error:  # noqa: BLE001  # one value that cannot be shown must not hide the others
        return f"<cannot be shown: {type(error).__name__}>"


def _value_of(name: str, checkpoint: RLMCheckpoint) -> str:
    return _value(checkpoint.repl_state[name]) if name in checkpoint.repl_state else "-"


def _pending(operation: Any) -> str:
    if not isinstance(operation, dict):
        return _value(operation)
    return f"{operation.get('kind')}: {_value(operation.get('payload'))}"


def _dollars(amount: float) -> str:
    return f"${amount:.4f}"
