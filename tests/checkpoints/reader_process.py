"""Another process: reads the files that a test wrote, makes the same values anew, and says where they part."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from checkpoints.same import difference
from checkpoints.table import TABLE
from rlm_memory.checkpoints import RLMCheckpoint, Unrestored


def verdict(path: Path, key: str | None) -> str:
    """Return "exact", "reported", or where the value parts from the one that its cell makes here."""
    checkpoint = RLMCheckpoint.load(path, trust=key)
    value = checkpoint.repl_state["v"]
    if any(issue.path.startswith("v") for issue in checkpoint.issues):
        return "reported"
    assert not isinstance(value, Unrestored)
    anew: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings(action="ignore"):
        exec(compile(TABLE[int(path.stem)].cell, "<cell>", "exec", dont_inherit=True), anew)
    return difference(anew["v"], value) or "exact"


def main(folder: Path, key: str) -> None:
    paths = sorted(folder.glob("*.rlmc"))
    found = {
        name: {path.stem: verdict(path, trust) for path in paths}
        for name, trust in (("signed", key), ("unsigned", None))
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
