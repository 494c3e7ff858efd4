"""The command `rlm-memory`: a store of memories from the terminal and from scripts.

Exit codes: 0 done, also when there was nothing to do; 1 `check` found problems; 2 what was asked cannot be done: the
command line, a filter, an id or a file that it names, or the extra `cli` is missing; 3 the store, the embedder or the
disk failed; 130 interrupted; 141 the reader of the output went away. An error is one line on stderr.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from rlm_memory.errors import (
    EmbeddingUnavailableError,
    InvalidInputError,
    MissingExtraError,
    NodeNotFoundError,
    RLMError,
)

USAGE = 2
FAILED = 3
INTERRUPTED = 130
PIPE_CLOSED = 141


def main() -> None:
    """Run the command with the arguments of this process, and leave the process with its exit code."""
    print_in_any_encoding()
    sys.exit(run(sys.argv[1:]))


def print_in_any_encoding() -> None:
    """Let stdout show a question mark for a letter that its encoding lacks; JSON is escaped instead."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def run(arguments: Sequence[str]) -> int:
    """Run the command with these arguments and return its exit code."""
    try:
        code = _run(arguments)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit:  # what prints the help leaves so where nobody reads on
        code = PIPE_CLOSED
    return _failed("interrupted", code) if code == INTERRUPTED else code


def _run(arguments: Sequence[str]) -> int:
    try:
        from rlm_memory.cli.commands import UsageError, command
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich"}:
            raise
        return _failed(MissingExtraError("The command rlm-memory", "cli"), USAGE)
    try:
        code = command()(list(arguments), prog_name="rlm-memory", standalone_mode=False)
    except UsageError as error:
        asked = error.ctx.command_path if error.ctx else "rlm-memory"
        return _failed(f"{_ended(error.format_message())} See: {asked} --help", USAGE)
    except (InvalidInputError, NodeNotFoundError) as error:
        return _failed(error, USAGE)
    except EmbeddingUnavailableError as error:
        return _failed(f"{_ended(str(error))} Here that is --embedder wordllama, or --embedder none.", FAILED)
    except RLMError as error:
        return _failed(error, FAILED)
    except OSError as error:
        return _failed(f"{error.filename or 'The output'}: {error.strerror or error}.", FAILED)
    return code if isinstance(code, int) else 0


def _ended(sentence: str) -> str:
    """Return a sentence with the point that it may lack."""
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def _failed(error: Exception | str, code: int) -> int:
    message = " ".join(str(error).split())
    print("rlm-memory:", "".join(letter if letter.isprintable() else "�" for letter in message), file=sys.stderr)
    return code
