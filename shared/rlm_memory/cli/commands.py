"""The commands of `rlm-memory`, one function each."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import typer
from typer.core import TyperGroup
from typer.main import get_command

from rlm_memory.cli import PIPE_CLOSED, checkpoints, lifecycle, output
from rlm_memory.cli import demo as demonstration
from rlm_memory.cli.examples import explained
from rlm_memory.cli.files import BATCH, read_text, store_text
from rlm_memory.cli.new_store import EmbeddedAhead, named, new_file
from rlm_memory.cli.passages import split_text
from rlm_memory.copying import copy_store
from rlm_memory.embedding import resolve_embedder
from rlm_memory.errors import InvalidInputError, StoreVersionError
from rlm_memory.interchange import expect_export
from rlm_memory.location import VARIABLE
from rlm_memory.memory import DEFAULT_EMBEDDER, EmbedderSpec, Memory
from rlm_memory.promotion import PromotionPolicy
from rlm_memory.records import NODE_TYPES, TIERS, Node, NodeType, Tier
from rlm_memory.validation import checked_path, no_node

UsageError: Any = typer.BadParameter.__bases__[0]
"""What typer raises for a command line that it cannot read; it has no public name there."""


NO_EMBEDDER = "none"
_GONE: Final = "A store in memory begins empty and is gone when the command ends; name a file, or a postgresql:// URL."


@dataclass(frozen=True, slots=True)
class Options:
    """The options that every command takes."""

    location: str | None
    namespace: str
    embedder: str | None
    policy: PromotionPolicy
    json: bool

    def open(self, *, read_only: bool = False) -> Memory:
        """Return the store, for a command that embeds nothing."""
        return self._open(self.location, None, read_only=read_only)

    def open_existing(self) -> Memory:
        """Return the store for writing, for a command to which one that was made just now would be of no use."""
        self.is_up_to_date()
        return self.open()

    def open_existing_to_embed(self) -> Memory:
        """Return the store as `open_to_embed` does, where there is one."""
        self.is_up_to_date()
        return self.open_to_embed()

    def is_up_to_date(self) -> bool:
        """Tell of a store that is there whether it needs not be changed to be read; a newer one cannot be either."""
        try:
            self.open(read_only=True).close()
        except StoreVersionError:
            return False
        return True

    def open_to_embed(self, *, read_only: bool = False) -> Memory:
        """Return the store with the embedder that the command line names, else with that of the store's vectors."""
        embedder = self.embedder
        if embedder is None:
            with self.open(read_only=read_only) as memory:
                embedder = _own_embedder(memory)
        return self._open(self.location, None if embedder == NO_EMBEDDER else embedder, read_only=read_only)

    def open_to_store(self, texts: Sequence[str]) -> Memory:
        """Return the store as `open_to_embed` does; where it is to be made, it is when these texts have vectors."""
        if not texts or self.embedder == NO_EMBEDDER or new_file(self.location) is None:
            return self.open_to_embed()
        return self.open_at(self.location, embedder=EmbeddedAhead(self.embedder or DEFAULT_EMBEDDER, texts))

    def open_at(self, location: str | None, *, embedder: EmbedderSpec = None) -> Memory:
        """Return the store at a place of the command's own."""
        return self._open(location, embedder, read_only=False)

    def _open(self, location: str | None, embedder: EmbedderSpec, *, read_only: bool) -> Memory:
        if (location or os.environ.get(VARIABLE)) == ":memory:":
            raise InvalidInputError(_GONE)
        return Memory.open(
            location,
            embedder=embedder,
            namespace=self.namespace,
            policy=self.policy,
            read_only=read_only,
            # a store does not keep its application's policy, and nobody asked this command to archive by another
            sweep=False,
        )


def _own_embedder(memory: Memory) -> str:
    """Return the name of the embedder that a store's vectors are of, or the default if it has none yet."""
    stats = memory.stats()
    if stats.dimensions is None:
        return DEFAULT_EMBEDDER
    model = stats.embedding_model or ""
    try:
        resolve_embedder(model)
    except InvalidInputError:
        output.note(f"Only keywords are used: the store's vectors are of {model or 'an unnamed model'}, unknown here.")
        return NO_EMBEDDER
    return model


class _Commands(TyperGroup):
    """Takes the options of every command before its name and after it, and ends quietly when nobody reads on."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first: list[str] = []
        rest: list[str] = []
        remaining = iter(args)
        for argument in remaining:
            name, equals, _ = argument.partition("=")
            if argument == "--":
                rest += [argument, *remaining]
            elif name in {"--db", "--namespace", "--embedder", "--policy"}:
                first += [argument] if equals else [argument, *islice(remaining, 1)]
            elif argument == "--json":
                first.append(argument)
            else:
                rest.append(argument)
        return super().parse_args(ctx, [*first, *rest])

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            # the interpreter flushes stdout once more on its way out, and would complain there
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(PIPE_CLOSED) from error
        return result


@cache
def command() -> Any:
    """Return the whole command line, built once: `command()(arguments)` runs it."""
    return explained(get_command(app))


app = typer.Typer(cls=_Commands, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(checkpoints.app, name="checkpoints")
app.add_typer(lifecycle.app)

_Name = TypeVar("_Name", bound=str)
_Where: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="""Only nodes that match, such as '{"source": {"$like": "%notes.md"}}'."""),
]
_Tiers: TypeAlias = Annotated[
    list[str] | None, typer.Option("--tier", help=f"Only this tier, one of {', '.join(TIERS)}; may be repeated.")
]


@app.callback(invoke_without_command=True)
def options(
    ctx: typer.Context,
    db: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            envvar="RLM_MEMORY_DB",
            help="A file, or a postgresql:// URL; by default a file in your data folder.",
        ),
    ] = None,
    namespace: Annotated[str, typer.Option(help="The tenant whose nodes are meant.")] = "default",
    embedder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="openai:MODEL, model2vec:MODEL, wordllama, or none for keywords alone; by default the store's own.",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            envvar="RLM_MEMORY_POLICY",
            help="""Your application's numbers for the rules of tiers, such as '{"archive_after_days": 30}'.""",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one document, or one a line.")] = False,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Long-term memory for agents in one SQLite file.

    --db, --namespace, --embedder, --policy and --json may stand before a command or after it.
    """
    if show_version:
        print(version("rlm-memory"))
    elif ctx.invoked_subcommand is None:
        print(ctx.get_help())
    ctx.obj = Options(db, namespace, embedder, _policy(policy), as_json)


@app.command()
def demo(ctx: typer.Context) -> None:
    """Store Python's language reference and show what keywords, vectors and both find in it.

    Needs no key and no network. Without --db the store is a new file among the temporary ones.
    """
    opts: Options = ctx.obj
    name = opts.embedder or "wordllama"
    embedder: EmbedderSpec = name
    if not opts.location or new_file(opts.location):
        embedder = EmbeddedAhead(name, [demonstration.QUESTIONS[0].text])
    location = opts.location or str(Path(tempfile.mkdtemp(prefix="rlm-memory-demo-"), "memory.db"))
    with opts.open_at(location, embedder=embedder) as memory:
        demonstration.run(memory, location=location, program=_program(), as_json=opts.json)


@app.command()
def add(
    ctx: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="UTF-8 text files; - for standard input.")],
    size: Annotated[int, typer.Option(min=1, help="The most characters of a passage.")] = 1000,
    overlap: Annotated[int, typer.Option(min=0, help="The most characters that a passage repeats of the last.")] = 0,
    name: Annotated[str | None, typer.Option(help="What the text on standard input is called.")] = None,
    type: Annotated[NodeType, typer.Option(help="The type of the nodes.")] = "snippet",
    tier: Annotated[Tier, typer.Option(help="The tier of new nodes.")] = "task",
    confidence: Annotated[float, typer.Option(min=0, max=1, help="The confidence of new nodes.")] = 0.5,
) -> None:
    """Store the passages of text files, or of standard input.

    Adding a file again replaces its passages. Those that are the same stay as they are, and cost nothing.
    """
    opts: Options = ctx.obj
    texts = [read_text(file, name=name) for file in files]
    passages = [split_text(text.content, size=size, overlap=overlap) for text in texts]
    template = Node(text="", type=type, tier=tier, confidence=confidence)
    total = sum(map(len, passages))
    done = 0
    first = [passage.text for passage in itertools.chain(*passages)][:BATCH]
    with opts.open_to_store(first) as memory, output.progress_bar("Storing") as progress:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            progress(done, total)

        stored = [
            store_text(memory, text, pieces, template, advance=advance)
            for text, pieces in zip(texts, passages, strict=True)
        ]
    for report in stored:
        if opts.json:
            output.print_json(asdict(report))
        else:
            parts = [f"{report.added} stored", f"{report.unchanged} unchanged", f"{report.removed} removed"]
            print(f"{output.printable(report.source)}: {output.plural(report.passages, 'passage')}, {', '.join(parts)}")


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words or a question.")],
    k: Annotated[int, typer.Option("-k", min=0, help="The most hits.")] = 4,
    alpha: Annotated[
        float | None, typer.Option(min=0, max=1, help="0: keywords alone; 1: vectors alone; by default 0.5.")
    ] = None,
    where: _Where = None,
    tier: _Tiers = None,
    type: Annotated[
        list[str] | None, typer.Option(help=f"Only this type, one of {', '.join(NODE_TYPES)}; may be repeated.")
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Search the archive too.")] = False,
) -> None:
    """Find the nodes that answer a query best."""
    opts: Options = ctx.obj
    with opts.open_to_embed(read_only=True) as memory:
        hits = memory.search(
            query,
            k=k,
            alpha=alpha,
            where=_filter(where),
            tiers=_among(TIERS, tier),
            types=_among(NODE_TYPES, type),
            include_archived=archived,
        )
    if opts.json:
        for hit in hits:
            output.print_json(output.hit_document(hit))
    else:
        output.print_rows(
            ["score", "cosine", "bm25", "id", "text"],
            [[*map(output.number, (hit.score, hit.semantic, hit.keyword)), hit.node.id, hit.node.text] for hit in hits],
            numbers=3,
        )


@app.command("list")
def list_nodes(
    ctx: typer.Context,
    where: _Where = None,
    tier: _Tiers = None,
    archived: Annotated[bool, typer.Option("--archived", help="List the archive too.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="The most nodes.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Go on behind this node.")] = None,
) -> None:
    """List nodes in the order they were added, a page at a time."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) as memory:
        # one more than asked tells whether there is another page
        page = memory.list(
            where=_filter(where),
            tiers=_among(TIERS, tier),
            include_archived=archived,
            limit=limit + 1,
            after=after,
        )
    nodes = page[:limit]
    if opts.json:
        for node in nodes:
            output.print_json(output.node_document(node))
    else:
        output.print_rows(
            ["id", "type", "tier", "confidence", "text"],
            [[node.id, node.type, node.tier, f"{node.confidence:.2f}", node.text] for node in nodes],
        )
    if len(page) > limit:
        output.note(f"There are more: go on with --after {nodes[-1].id}")


@app.command()
def show(ctx: typer.Context, ids: Annotated[list[str], typer.Argument(metavar="ID")]) -> None:
    """Show nodes with all that is known of them."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) as memory:
        nodes = {node.id: node for node in memory.get(ids)}
    missing = [id for id in ids if id not in nodes]
    if missing:
        raise no_node(*missing, namespace=opts.namespace)
    for id in ids:
        if opts.json:
            output.print_json(output.node_document(nodes[id]))
        else:
            output.print_node(nodes[id])


@app.command()
def stats(ctx: typer.Context) -> None:
    """Tell what the store holds and what it costs."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) as memory:
        found = memory.stats()
    if opts.json:
        output.print_json({**asdict(found), "by_tier": dict(found.by_tier), "by_type": dict(found.by_type)})
    else:
        output.print_stats(found)


@app.command()
def check(ctx: typer.Context) -> None:
    """Look for faults in the store; the exit code is 1 if there is one."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) as memory:
        report = memory.check()
    if opts.json:
        output.print_json({"ok": bool(report), "problems": [asdict(problem) for problem in report]})
    elif report:
        print("The store is sound.")
    else:
        output.print_rows(["where", "what is wrong"], [[problem.where, problem.what] for problem in report])
    if not report:
        raise typer.Exit(1)


@app.command()
def upgrade(ctx: typer.Context) -> None:
    """Bring a store of an older release up to date; a copy is kept beside a file: NAME.schema-VERSION.backup.

    Commands that write do so by themselves, and those that only read ask for it. Older releases cannot read it then.
    """
    opts: Options = ctx.obj
    upgraded = not opts.is_up_to_date()
    with opts.open() as memory:
        location = memory.location
    what = "is brought up to date" if upgraded else "is up to date already"
    _done(opts, f"{location} {what}.", location=location, upgraded=upgraded)


@app.command()
def backup(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; it must not be there.")],
) -> None:
    """Copy the whole store to a new file while it is in use."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) as memory:
        memory.backup(path)
    _done(opts, f"The store is copied to {path}.", path=str(path), bytes=path.stat().st_size)


@app.command("export")
def export_nodes(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(metavar="FILE", help="A new file; - for standard output.")],
) -> None:
    """Write the namespace, all that it holds, as JSON lines."""
    opts: Options = ctx.obj
    with opts.open(read_only=True) as memory, tempfile.TemporaryDirectory(prefix="rlm-memory-") as folder:
        target = str(Path(folder, "export.jsonl")) if path == "-" else path
        with output.progress_bar("Writing") as advance:
            count = memory.export(target, progress=advance)
        if path == "-":
            sys.stdout.flush()
            with open(target, "rb") as lines:
                shutil.copyfileobj(lines, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            _done(opts, f"{output.plural(count, 'node')} written to {path}.", path=path, nodes=count)


@app.command("import")
def import_nodes(
    ctx: typer.Context,
    path: Annotated[str, typer.Argument(metavar="FILE", help="The file to read; - for standard input.")],
    nodes_only: Annotated[
        bool, typer.Option("--nodes-only", help="Leave out sessions, the promotion log and threads.")
    ] = False,
) -> None:
    """Take in an export; a node that is there already is replaced."""
    opts: Options = ctx.obj
    with tempfile.TemporaryDirectory(prefix="rlm-memory-") as folder:
        origin, name = path, path
        if path == "-":
            name = "standard input"
            origin = str(Path(folder, name))  # which errors tell
            with open(origin, "wb") as lines:
                shutil.copyfileobj(sys.stdin.buffer, lines)
        expect_export(checked_path(origin), name=name)  # before a store is made for it
        count = _imported(opts, origin, history=not nodes_only)
    _done(opts, f"{output.plural(count, 'node')} stored.", nodes=count)


def _imported(opts: Options, path: str, *, history: bool) -> int:
    """Take in an export and return how many nodes; a store that is new gets its name when it is whole."""

    def into(location: str | None) -> int:
        with opts.open_at(location) as memory, output.progress_bar("Reading", size=True) as advance:
            return memory.import_(path, history=history, progress=advance)

    if file := new_file(opts.location):
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as aside:
            made = Path(aside, file.name)
            count = into(str(made))
            if named(made, file):
                return count
    return into(opts.location)


def _expect_no_options_of_one_store(ctx: typer.Context, source: str) -> str:
    """Refuse what `copy` would pass over in silence, and say how it is written; before a place is missed for it."""
    given = {name for name in ("db", "namespace") if _is_given(ctx.parent, name)}
    if "db" in given:
        raise InvalidInputError(
            f"copy takes two stores by their places, FROM and TO, and not --db {ctx.obj.location}: "
            "rlm-memory copy memory.db copied.db"
        )
    if "namespace" in given:
        raise InvalidInputError("copy takes all namespaces, or those of --only NAME, and not --namespace.")
    return source


def _is_given(ctx: Any, name: str) -> bool:
    """Tell whether an option is from the command line, and not from the environment or the default."""
    return bool(ctx.get_parameter_source(name).name == "COMMANDLINE")


@app.command("copy")
def copy_command(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM", help="A file, or a postgresql:// URL.", callback=_expect_no_options_of_one_store
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="The same; it is made if it is new.")],
    only: Annotated[list[str] | None, typer.Option(help="Only this namespace; may be repeated.")] = None,
) -> None:
    """Copy a store, all that it holds, to another file or server, and compare the two.

    A copy that was interrupted goes on when the command is given again. The exit code is 3 where the two differ.
    """
    opts: Options = ctx.obj
    with output.progress_bar("Copying") as advance:
        copies = copy_store(source, target, namespaces=only, progress=advance)
    if opts.json:
        for each in copies:
            output.print_json(asdict(each))
        return
    if not copies:
        print("There is nothing to copy: the store has no namespace yet.")
    for each in copies:
        counted = ", ".join(f"{kind} {count:,}" for kind, count in each.counts.items()) or "nothing in it"
        chained = "" if each.log_kept else "; its log is chained anew"
        print(output.printable(f"{each.namespace}: {counted}: the same on both sides{chained}."))


@app.command()
def reembed(
    ctx: typer.Context,
    to: Annotated[
        str | None,
        typer.Option(metavar="EMBEDDER", help="Change all vectors, to those of this; named as for --embedder."),
    ] = None,
    pending: Annotated[bool, typer.Option("--pending", help="Only embed what has no vector yet.")] = False,
) -> None:
    """Change the vectors of the whole store to those of another embedder, or fill in what is missing."""
    opts: Options = ctx.obj
    if pending == (to is not None):
        raise InvalidInputError("reembed takes --to with an embedder, or --pending: one of the two.")
    if to == NO_EMBEDDER:
        raise InvalidInputError("reembed needs an embedder; vectors are not taken away. Name one with --to.")
    opened = opts.open_existing_to_embed() if pending else opts.open_existing()
    with opened as memory, output.progress_bar("Embedding") as advance:
        count = memory.embed_pending(progress=advance) if pending else memory.reembed(to, progress=advance)
    _done(opts, f"{output.plural(count, 'node')} embedded.", embedded=count)


@app.command()
def compact(ctx: typer.Context) -> None:
    """Give the space of deleted nodes back to the disk."""
    opts: Options = ctx.obj
    with opts.open_existing() as memory:
        before = memory.stats().file_bytes
        memory.compact()
        after = memory.stats().file_bytes
    _done(opts, f"{output.size(before)} before, {output.size(after)} now.", bytes_before=before, bytes_after=after)


@app.command()
def delete(
    ctx: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID")] = None,
    where: _Where = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete nodes, by their ids or by a filter, after asking."""
    opts: Options = ctx.obj
    if bool(ids) == (where is not None):
        raise InvalidInputError("delete takes ids, or --where with a filter: one of the two.")
    condition = _filter(where)
    if where is not None and not condition:
        raise InvalidInputError("An empty filter would delete every node; say which ones.")
    with opts.open_existing() as memory:
        count = len(memory.get(ids)) if ids else memory.count(where=condition, include_archived=True)
        if count and not yes:
            if not sys.stdin.isatty():
                raise InvalidInputError(f"delete would take away {output.plural(count, 'node')}; confirm with --yes.")
            print(f"Delete {output.plural(count, 'node')}? [y/N] ", end="", file=sys.stderr, flush=True)
            if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
                count = 0
        deleted = memory.delete(ids, where=condition) if count else 0
    _done(opts, f"{output.plural(deleted, 'node')} deleted.", deleted=deleted)


def _program() -> str:
    """Return what has to be typed to run this program again."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{Path(sys.executable).name} -m rlm_memory.cli"
    on_path = shutil.which(started.name)
    return started.name if on_path and Path(on_path).samefile(started) else os.path.relpath(started)


def _among(known: tuple[_Name, ...], names: Sequence[str] | None) -> list[_Name] | None:
    """Return the names as what they are known to be, or None if there are none."""
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise InvalidInputError(f"{unknown[0]!r} is unknown; expected one of {', '.join(known)}.")
    return [name for name in known if name in names] if names else None


def _filter(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        condition = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"--where is not JSON: {error}.") from error
    if not isinstance(condition, dict):
        raise InvalidInputError(f"--where must be a JSON object, got {text}.")
    return condition


def _policy(text: str | None) -> PromotionPolicy:
    """Return the policy with these numbers, the documented ones where it names none."""
    source = "--policy (or RLM_MEMORY_POLICY)"
    try:
        numbers = {} if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{source} is not JSON: {error}.") from error
    if not isinstance(numbers, dict):
        raise InvalidInputError(f"{source} must be a JSON object, got {text}.")
    known = [each.name for each in fields(PromotionPolicy)]
    if unknown := [name for name in numbers if name not in known]:
        raise InvalidInputError(f"{source} has no number {unknown[0]!r}; expected some of {', '.join(known)}.")
    try:
        return PromotionPolicy(**numbers)
    except InvalidInputError as error:
        raise InvalidInputError(f"{source} cannot be used. {error}") from error


def _done(opts: Options, message: str, **document: object) -> None:
    if opts.json:
        output.print_json(document)
    else:
        print(output.printable(message))
