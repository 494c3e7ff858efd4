"""Examples for the help of each command; the tests run them, with an id of the store in the place of ID."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

EXIT_CODES: Final = (
    "Exit codes: 0 done; 1 check or verify found a fault; 2 what was asked cannot be done, as with a bad filter, an "
    "unknown id or a file that is not there; 3 the store, the embedder or the disk failed."
)

_COMMON: Final = "--db, --namespace, --embedder, --policy and --json go with it too: see rlm-memory --help."
_JSON_ALONE: Final = "--json goes with it too: see rlm-memory --help."

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        "rlm-memory demo",
        "rlm-memory add notes.md --embedder wordllama",
        "rlm-memory search 'who is allergic?'",
    ),
    "demo": ("rlm-memory demo", "rlm-memory --db demo.db demo"),
    "add": (
        "rlm-memory add notes.md --embedder wordllama",
        "git log -20 | rlm-memory add - --name history --type experience",
    ),
    "search": (
        "rlm-memory search 'who is allergic?' -k 3",
        """rlm-memory search allergic --where '{"source": {"$like": "%notes.md"}}' --json""",
        "rlm-memory search E4711 --alpha 0",
    ),
    "list": ("rlm-memory list --tier longterm", "rlm-memory list --limit 10 --after ID"),
    "show": ("rlm-memory show ID", "rlm-memory show ID --json"),
    "stats": ("rlm-memory stats", "rlm-memory --db work.db --namespace anna stats"),
    "check": ("rlm-memory check && echo sound",),
    "upgrade": ("rlm-memory upgrade",),
    "backup": ("rlm-memory backup copy.db",),
    "export": ("rlm-memory export nodes.jsonl", "rlm-memory export - | gzip > nodes.jsonl.gz"),
    "import": (
        "rlm-memory --db other.db import nodes.jsonl",
        "gunzip -c nodes.jsonl.gz | rlm-memory import - --nodes-only",
    ),
    "copy": ("rlm-memory copy memory.db copied.db", "rlm-memory copy memory.db copied.db --only default --json"),
    "reembed": ("rlm-memory reembed --pending", "rlm-memory reembed --to wordllama"),
    "compact": ("rlm-memory compact",),
    "delete": ("rlm-memory delete ID", """rlm-memory delete --where '{"source": {"$like": "%/old.md"}}' --yes"""),
    "log": ("rlm-memory log --since 2026-03-01", "rlm-memory log ID --json"),
    "explain": ("rlm-memory explain ID", """rlm-memory explain ID --policy '{"min_sessions": 2}'"""),
    "promote": ("rlm-memory promote ID longterm --reason 'Ada said so'",),
    "pin": ("rlm-memory pin ID --reason 'needed every year'",),
    "unpin": ("rlm-memory unpin ID",),
    "restore": ("rlm-memory restore ID --reason 'asked for again'",),
    "sweep": ("rlm-memory sweep --dry-run", """rlm-memory sweep --policy '{"archive_after_days": 30}'"""),
    "sessions": ("rlm-memory sessions --limit 10",),
    "checkpoints": ("rlm-memory checkpoints list checkpoints", "rlm-memory checkpoints show checkpoints SESSION"),
    "checkpoints list": (
        "rlm-memory checkpoints list checkpoints",
        "rlm-memory checkpoints list checkpoints --session SESSION",
    ),
    "checkpoints show": ("rlm-memory checkpoints show checkpoints SESSION",),
    "checkpoints diff": ("rlm-memory checkpoints diff checkpoints FIRST SECOND",),
    "checkpoints verify": ("rlm-memory checkpoints verify checkpoints",),
    "checkpoints export": ("rlm-memory checkpoints export checkpoints SESSION state.rlmc",),
}


def every_command(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each command of a click group with its path below the program: "", "add", "checkpoints list"."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from every_command(command, f"{path} {name}".strip())


def _options_of_every_command(path: str) -> list[str]:
    """Return the line that names what the help of a command does not list, because it goes with all of them."""
    match path.split():
        case []:
            return []
        case ["copy" | "checkpoints", *_]:
            return [_JSON_ALONE]
        case _:
            return [_COMMON]


def explained(group: Any) -> Any:
    """Return the same group, whose commands end their help with examples and what the exit codes mean."""
    for path, command in every_command(group):
        # a blank line is what the help keeps as the end of a line; a bracket would be markup
        lines = [f"  {line}".replace("[", r"\[") for line in EXAMPLES[path]]
        command.epilog = "\n\n".join([*_options_of_every_command(path), "Examples:", *lines, EXIT_CODES])
    return group
