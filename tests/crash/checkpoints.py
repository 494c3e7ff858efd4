"""Kill a process that saves checkpoints, several hundred times, and look for what it had acknowledged.

    python tests/crash/checkpoints.py --kills 500

Each writer restores the session that the one before left, so the session itself is resumed as often as it is killed.
Exits with a traceback when an acknowledged checkpoint or call is lost, torn, or paid twice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from checkpoints.kills import kill_again_and_again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_again_and_again(Path(folder) / "store", options.kills, seed=options.seed)
    print(
        f"{tally.kills} kills in {time.perf_counter() - began:.0f} s: {tally.turn} turns and {tally.call + 1} calls "
        f"acknowledged, none lost, none torn, none made twice; {tally.half_written} half-written files swept"
    )


if __name__ == "__main__":
    main()
