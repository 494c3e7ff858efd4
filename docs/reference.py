"""Build the API reference into a folder: python docs/reference.py build/reference. Any warning is an error."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pdoc
import pdoc.render

PACKAGES = ("rlm_memory", "rlm_memory.errors", "rlm_memory.checkpoints", "langchain_rlm", "llamaindex_rlm")


def load() -> None:
    """Import what the packages import only when it is asked for: pdoc looks at what is there."""
    for package in map(import_module, PACKAGES):
        for name in getattr(package, "__all__", ()):
            setattr(package, name, getattr(package, name))


def spell_out_aliases() -> None:
    """Make types of the aliases that are written as texts: pdoc reads them where they are used, without their names."""
    ours = [module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES]
    while aliases := {key: alias for module in ours for key, alias in spelled_out(module)}:
        for module in ours:
            for (name, text), alias in aliases.items():
                if vars(module).get(name) == text:
                    setattr(module, name, alias)


def spelled_out(module: ModuleType) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield name and text of each alias that can be made a type now, and the type."""
    for name, annotation in getattr(module, "__annotations__", {}).items():
        text = getattr(module, name, None)
        if annotation == "TypeAlias" and isinstance(text, str):
            # NameError: a name that only type checkers import; TypeError: an alias of one that is still a text
            with contextlib.suppress(NameError, TypeError):
                yield (name, text), eval(text, dict(vars(module)))  # noqa: S307 - our own source


def main() -> None:
    """Build it."""
    warnings.simplefilter("error")
    # the keys that a TypedDict has from another one are in no class that Python would know of
    warnings.filterwarnings("ignore", r"Cannot determine where langchain_rlm\.SearchOptions\.")
    # imports of the frameworks warn of their own affairs
    with warnings.catch_warnings(action="ignore"):
        load()
    spell_out_aliases()
    pdoc.render.configure(docformat="google", footer_text="rlm-memory")
    pdoc.pdoc(*PACKAGES, output_directory=Path(sys.argv[1]))


if __name__ == "__main__":
    main()
