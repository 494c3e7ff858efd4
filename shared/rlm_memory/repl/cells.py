"""Runs one cell: its output, what its last expression shows, and its error in plain words."""

from __future__ import annotations
import __future__

import ast
import itertools
import linecache
import time
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from rlm_memory.checkpoints.sources import FILENAME as RESTORED
from rlm_memory.checkpoints.sources import Sources
from rlm_memory.repl.capture import captured, shortened

_FILENAME: Final = "<cell "
_REMEMBERED: Final = 1000
_FRAMES_SHOWN: Final = 8
_FUTURES: Final = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)

_numbers: Final = itertools.count(1)
_in_linecache: Final[deque[str]] = deque()


class CellStopped(BaseException):
    """Ends a cell that runs for too long; no Exception, so that `except Exception` in the cell does not keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """What came of a cell.

    `value` is what its last expression shows, None where it is no expression or is None. `error` says in plain words
    why it failed and where, None where it did not. `notes` are for the model to know before it goes on. `seconds` is
    the time that it ran. Each text is at most as long as the REPL's `max_output`, plus a note of what was left out.
    """

    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: str | None = None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """All of it in one text, for a model to read."""
        parts = [*self.notes, self.stdout, self.stderr, self.value, self.error]
        return "\n".join(part.rstrip("\n") for part in parts if part) or "Done. Nothing was printed."


def run_cell(source: str, namespace: dict[str, Any], *, sources: Sources, max_output: int) -> CellResult:
    """Run a cell in a namespace and return what came of it; it raises nothing but KeyboardInterrupt.

    What a cell that fails had assigned before stays in the namespace. `sources` are the cells that ran before.
    """
    filename = _remembered(source)
    # a script's `if __name__ == "__main__":` is meant to run, and a class needs a module
    namespace.setdefault("__name__", "__main__")
    value: str | None = None
    error: str | None = None
    began = time.perf_counter()
    with captured(max_output) as output:
        try:
            value = _shown(_executed(source, filename, namespace), max_output)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:  # noqa: BLE001  # a cell may raise anything, exit() included
            error = shortened(explained(failure, sources), max_output)
    return CellResult(
        stdout=output.stdout.text,
        stderr=output.stderr.text,
        value=value,
        error=error,
        seconds=time.perf_counter() - began,
    )


def _executed(source: str, filename: str, namespace: dict[str, Any]) -> Any:
    """Run the source and return the value of its last expression, or None."""
    tree = ast.parse(source, filename)
    last = tree.body[-1].value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if last is not None:
        tree.body.pop()
    # dont_inherit: without it this module's `from __future__` imports would change what is compiled
    body: CodeType = compile(tree, filename, "exec", dont_inherit=True)
    exec(body, namespace)  # noqa: S102  # it is what a REPL is for
    if last is None:
        return None
    flags = body.co_flags & _FUTURES
    expression = compile(ast.Expression(last), filename, "eval", flags=flags, dont_inherit=True)
    return eval(expression, namespace)  # noqa: S307  # likewise


def _shown(value: Any, limit: int) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and len(value) > limit:
        return shortened(value, limit)  # the repr of a text of many megabytes is not made to be cut
    return shortened(repr(value), limit)


def _remembered(source: str) -> str:
    """Return a file name under which tracebacks and `inspect.getsource` find the source."""
    filename = f"{_FILENAME}{next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    _in_linecache.append(filename)
    if len(_in_linecache) > _REMEMBERED:
        linecache.cache.pop(_in_linecache.popleft(), None)
    return filename


def explained(error: BaseException, sources: Sources) -> str:
    """Return what went wrong, and in which lines of which cells; of other code, nothing is shown."""
    lines = [_headline(error), *_places(error, sources)]
    notes = getattr(error, "__notes__", None)
    lines += [f"  {note}" for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and not isinstance(error, CellStopped):
        lines.append(f"  It came from {_headline(cause)}")
    return "\n".join(lines)


def _headline(error: BaseException) -> str:
    match error:
        case SystemExit():
            return "The cell called exit: it ended there, and the session goes on."
        case CellStopped():
            return str(error)
        case SyntaxError(msg=message):
            return f"{type(error).__name__}: {message}"
        case _:
            try:
                text = str(error)
            except Exception:  # noqa: BLE001  # its __str__ is anybody's code
                text = "it has no text, because its own __str__ failed"
            return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _places(error: BaseException, sources: Sources) -> Iterator[str]:
    frames = ((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))
    places = [
        _place(line, _line(code, line, sources), code.co_name)
        for code, line in frames
        if code.co_filename.startswith(_FILENAME) or code.co_filename == RESTORED
    ]
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(_FILENAME):
        places.append(_place(error.lineno, error.text))
    if len(places) > _FRAMES_SHOWN:
        left_out = len(places) - _FRAMES_SHOWN
        places[_FRAMES_SHOWN // 2 : -_FRAMES_SHOWN // 2] = [f"  … {left_out:,} more calls …"]
    yield from places


def _line(code: CodeType, number: int, sources: Sources) -> str:
    if code.co_filename != RESTORED:
        return linecache.getline(code.co_filename, number)
    # a function that came back from a checkpoint has no file name of its own, but its cell was kept
    found = sources.of_function(FunctionType(code, {}, closure=tuple(CellType() for _ in code.co_freevars)))
    lines = found[0].splitlines() if found is not None else []
    return lines[number - 1] if number <= len(lines) else ""


def _place(line: int | None, text: str | None, function: str = "<module>") -> str:
    within = "" if function == "<module>" else f" in {function}"
    return f"  line {line}{within}: {text.strip()}" if text and text.strip() else f"  line {line}{within}"
