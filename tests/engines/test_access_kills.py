"""The short form of crash/accesses.py: kills of processes that report accesses and outcomes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes import environment


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork() here")
def test_a_kill_loses_no_report_that_had_returned_and_doubles_none() -> None:
    """B059 B135"""
    program = Path(__file__).parents[1] / "crash" / "accesses.py"
    done = subprocess.run(
        [sys.executable, program, "--kills", "12"],
        env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == 12
    assert report["with reports still queued"] > 0, "the kills come too late to lose anything"
    assert report["accesses"] > 50
    assert report["outcomes"] > 10
