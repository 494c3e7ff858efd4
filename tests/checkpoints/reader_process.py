"""Another process: reads the files that a test wrote, makes the same values anew, and says where they part."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

from checkpoints.same import difference
from checkpoints.table import TABLE
from rlm_memory.checkpoints import RLMCheckpoint, Unrestored


def main(folder: Path, key: str | None) -> None:
    verdicts: dict[str, str] = {}
    for path in sorted(folder.glob("*.rlmc")):
        row = TABLE[int(path.stem)]
        checkpoint = RLMCheckpoint.load(path, trust=key)
        issues = [issue for issue in checkpoint.issues if issue.path.startswith("v")]
        value = checkpoint.repl_state["v"]
        if issues:
            verdicts[row.name] = "reported"
            continue
        assert not isinstance(value, Unrestored)
        anew: dict[str, object] = {"__name__": "__main__"}
        with warnings.catch_warnings(action="ignore"):
            exec(compile(row.cell, "<cell>", "exec", dont_inherit=True), anew)
        verdicts[row.name] = difference(anew["v"], value) or "exact"
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
