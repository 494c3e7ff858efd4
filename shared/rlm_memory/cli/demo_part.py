"""Runs a part of the demonstration that is a module of an adapter: `python -m MODULE STORE`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from rlm_memory.cli import FAILED, INTERRUPTED, PIPE_CLOSED, USAGE, print_in_any_encoding
from rlm_memory.errors import InvalidInputError, RLMError
from rlm_memory.memory import Memory


def run_part(
    module: str, arguments: Sequence[str], main: Callable[[str], None], *, needs: str, value: object, made_by: str
) -> int:
    """Run a part with the store that the command line names and return the exit code; an error is a line on stderr.

    Args:
        module: The module that is the part.
        arguments: What the command line says behind the name of the module.
        main: Takes the path of the store and tells the part.
        needs: The metadata that some node of the store must have, because an earlier part has stored it.
        value: A condition on it, in the dialect of filters.
        made_by: The command of that part, with `STORE` for the store.
    """
    print_in_any_encoding()
    try:
        if len(arguments) != 1:
            raise InvalidInputError(f"Expected one store that an earlier part has made: {made_by}")
        (store,) = arguments
        with Memory.open(store, embedder=None, read_only=True) as memory:
            if not memory.count(where={needs: value}, include_archived=True):
                raise InvalidInputError(
                    f"{store} lacks what an earlier part stores; run that first: {made_by.replace('STORE', store)}"
                )
        main(store)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _failed(module, "interrupted", INTERRUPTED)
    except BrokenPipeError:
        # the interpreter flushes stdout once more on its way out, and would complain there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except RLMError as error:
        return _failed(module, str(error), USAGE if isinstance(error, InvalidInputError) else FAILED)
    return 0


def _failed(module: str, message: str, code: int) -> int:
    print(f"{module}: {message}", file=sys.stderr)
    return code
