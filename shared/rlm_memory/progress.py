"""Bars for long work in notebooks and scripts, by tqdm (the extra `notebooks`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlm_memory.errors import MissingExtraError

try:
    from tqdm.auto import tqdm
except ImportError as _error:
    raise MissingExtraError("A progress bar", "notebooks") from _error

if TYPE_CHECKING:
    from rlm_memory.ports import Progress


@contextmanager
def progress_bar(what: str, *, unit: str = "it") -> Iterator[Progress]:
    """Show a bar for as long as the block runs, and give what `progress=` takes.

    A widget in Jupyter, where ipywidgets is installed; else a line on stderr.

    Args:
        what: What is going on, for the reader.
        unit: What is counted: texts where something is embedded, bytes in `Memory.import_`.

    >>> from rlm_memory import Memory
    >>> from rlm_memory.progress import progress_bar
    >>> with Memory.open(":memory:", embedder=None) as memory, progress_bar("Adding", unit="text") as progress:
    ...     ids = memory.add(["Ada likes tea."], progress=progress)
    """
    with tqdm(desc=what, unit=unit, unit_scale=unit == "B") as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
