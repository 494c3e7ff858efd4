"""The short form of store.py: kills of everything that writes to a store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes import environment


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork() here")
def test_kills_lose_nothing_that_had_returned_and_leave_nothing_torn() -> None:
    """B059"""
    program = Path(__file__).with_name("store.py")
    done = subprocess.run(
        [sys.executable, program, "--kills", "36", "--migrations", "8", "--reembeddings", "6"],
        env=environment(), capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["writers"]) > 3
    assert sum(report["migrations"].values()) == 8
    assert report["reembeddings"]["killed"] >= 6
