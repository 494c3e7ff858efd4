"""The commands that show and tend the tiers of memories: what moved and why, by rules and by hand."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from rlm_memory.cli import output
from rlm_memory.errors import InvalidInputError
from rlm_memory.records import PromotionDecision, Tier
from rlm_memory.validation import no_node

if TYPE_CHECKING:
    from rlm_memory.cli.commands import Options
    from rlm_memory.memory import Memory

app = typer.Typer()

_Id: TypeAlias = Annotated[str, typer.Argument(metavar="ID", help="The id of a node.")]
_Reason: TypeAlias = Annotated[str, typer.Option(metavar="TEXT", help="Why; the log keeps it.")]


@app.command()
def log(
    ctx: typer.Context,
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Only what is about this node.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only from then on: 2026-03-01 or 2026-03-01T14:30, local without a zone."),
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="The most entries.")] = 50,
) -> None:
    """Show the last decisions about tiers, the earliest first; also those about deleted nodes."""
    opts: Options = ctx.obj
    start = None if since is None else _moment(since)
    with opts.open(read_only=True) as memory:
        entries = deque(memory.promotion_log(id, since=start), maxlen=min(last, sys.maxsize))
        known = id is None or entries or memory.get(id) or any(True for _ in memory.promotion_log(id))
    if id is not None and not known:
        raise no_node(id, namespace=opts.namespace)
    if opts.json:
        for entry in entries:
            output.print_json(
                {
                    "sequence": entry.sequence,
                    **asdict(entry.decision),
                    "previous_hash": entry.previous_hash,
                    "hash": entry.hash,
                }
            )
        return
    output.print_log(list(entries))


@app.command()
def explain(ctx: typer.Context, id: _Id) -> None:
    """Tell what a node's next move by a rule asks for, what was found, and what holds; see --policy."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) as memory:
        decision = memory.explain_promotion(id)
        _note_uses_not_counted(memory)
    if opts.json:
        output.print_json(asdict(decision))
        return
    output.print_pairs(
        [
            ("id", decision.node_id),
            ("tier", decision.from_tier),
            ("next", decision.to_tier if decision.conditions else "none"),
            ("reason", decision.reason),
        ]
    )
    if decision.conditions:
        print()
        output.print_rows(
            ["condition", "threshold", "found", "holds"],
            [[each.name, each.required, each.measured, output.yes_or_no(each.holds)] for each in decision.conditions],
        )


@app.command()
def promote(
    ctx: typer.Context,
    id: _Id,
    tier: Annotated[Tier, typer.Argument(metavar="TIER", help="task, session, longterm or archive.")],
    reason: _Reason,
) -> None:
    """Move a node to any tier, up or down."""
    opts: Options = ctx.obj
    with opts.open_existing() as memory:
        decision = memory.promote(id, tier, reason=reason)
    moved = f"moved from {decision.from_tier} to {tier}" if decision.moved else f"in {tier} already"
    _tell(opts, decision, f"{id} is {moved}.")


@app.command()
def pin(ctx: typer.Context, id: _Id, reason: _Reason = "pinned") -> None:
    """Keep a node from being archived by rules, and from fading."""
    opts: Options = ctx.obj
    with opts.open_existing() as memory:
        _tell(opts, memory.pin(id, reason=reason), f"{id} is pinned.")


@app.command()
def unpin(ctx: typer.Context, id: _Id, reason: _Reason = "unpinned") -> None:
    """Let the rules archive a node again."""
    opts: Options = ctx.obj
    with opts.open_existing() as memory:
        _tell(opts, memory.unpin(id, reason=reason), f"{id} is no longer pinned.")


@app.command()
def restore(ctx: typer.Context, id: _Id, reason: _Reason = "restored") -> None:
    """Bring a node back from the archive to longterm."""
    opts: Options = ctx.obj
    with opts.open_existing() as memory:
        _tell(opts, memory.restore(id, reason=reason), f"{id} is moved from archive to longterm.")


@app.command()
def sweep(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, and tell what would move.")] = False,
) -> None:
    """End crashed sessions, move what has earned longterm, archive what is long unused; see --policy."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) if dry_run else opts.open_existing() as memory:
        moves = memory.sweep(dry_run=dry_run)
        if dry_run:
            _note_uses_not_counted(memory)
    if opts.json:
        for move in moves:
            output.print_json(asdict(move))
    elif moves:
        output.print_rows(
            ["id", "from", "to", "reason"],
            [[move.node_id, move.from_tier, move.to_tier, move.reason] for move in moves],
        )
    else:
        print("Nothing would move." if dry_run else "Nothing moved.")


@app.command()
def sessions(ctx: typer.Context, limit: Annotated[int, typer.Option(min=1, help="The most sessions.")] = 50) -> None:
    """List the sessions that were active last, the latest first."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) as memory:
        found = memory.sessions(limit=limit)
    if opts.json:
        for session in found:
            output.print_json(asdict(session))
        return
    output.print_rows(
        ["turn", "last active", "ended", "id"],
        [
            [
                str(session.turn),
                output.local_time(session.last_active),
                output.yes_or_no(session.ended_at is not None),
                session.id,
            ]
            for session in found
        ],
        numbers=1,
    )


def _moment(text: str) -> datetime:
    """Return the moment that somebody means; without a zone it is local, as what is printed is."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError(
            f"--since is {text!r}; expected a time such as 2026-03-01, 2026-03-01T14:30 or 2026-03-01T14:30+01:00."
        ) from error


def _note_uses_not_counted(memory: Memory) -> None:
    """Tell where a command that writes may find more uses than one that only reads and cannot count them."""
    if memory.lifecycle.waiting:
        output.note("Uses that were reported lately, or by a process that died, may not be counted here; a sweep does.")


def _tell(opts: Options, decision: PromotionDecision, message: str) -> None:
    if opts.json:
        output.print_json(asdict(decision))
    else:
        print(output.printable(message))
