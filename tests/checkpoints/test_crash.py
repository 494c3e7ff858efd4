"""Being killed at any moment loses nothing that was acknowledged."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from checkpoints.processes import command, environment


def test_a_hundred_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    done = subprocess.run(
        command("kills", tmp_path / "store", 100), env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    tally = json.loads(done.stdout)
    assert tally["kills"] == 100
    assert tally["turn"] > 50, "the writers were killed before they did anything"
