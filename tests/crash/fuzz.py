"""Throw what libFuzzer thinks of at the readers of filters, questions, import files and checkpoints.

    pip install atheris
    python tests/crash/fuzz.py filter -max_total_time=300
    python tests/crash/fuzz.py question | import | checkpoint [corpus folder] [options of libFuzzer]

What is checked is in `fuzzing.py`: what comes out is right, or the input is refused by a typed error and nothing has
changed. The code under test is instrumented, so that inputs that reach new lines are tried further. Half of the inputs
of `import` and `checkpoint` are the bytes as they are, the others say how a sound file is changed. Code that a
checkpoint makes run, a file that it makes written, or memory beyond 2 GB ends the program.
The last lines tell how many inputs there were.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import atheris

with atheris.instrument_imports(include=["rlm_memory"]):
    import fuzzing
    from rlm_memory import Memory

from checkpoints import hostile_process

Target = Callable[[bytes], None]


class Bytes:
    """Dice that the fuzzer throws; when its bytes are used up, all of them show their least."""

    def __init__(self, data: bytes) -> None:
        self._provider = atheris.FuzzedDataProvider(data)

    def whole(self, low: int, high: int) -> int:
        number: int = self._provider.ConsumeIntInRange(low, high)
        return number

    def text(self) -> str:
        text: str = self._provider.ConsumeUnicode(self.whole(0, 20))
        return text


def filters(folder: Path) -> Target:
    checks = fuzzing.Filters(Memory.open(":memory:", embedder=None))
    return lambda data: checks.throw(Bytes(data))


def questions(folder: Path) -> Target:
    checks = fuzzing.Questions(Memory.open(":memory:", embedder=None))
    return lambda data: checks.throw(Bytes(data))


def imports(folder: Path) -> Target:
    checks = fuzzing.Imports(folder)

    def target(data: bytes) -> None:
        if data[:1] < b"\x80":
            checks.throw(Bytes(data[1:]))
        else:
            checks.check(checks.seed[0] + b"\n" + data[1:])

    return target


def checkpoints(folder: Path) -> Target:
    checks = fuzzing.Checkpoints()
    for each in itertools.chain(checks.files, [b""]):  # what is imported lazily is imported before code is watched
        checks.check(each)
    repr(fuzzing.sound_values())
    sys.addaudithook(hostile_process.watch)

    def target(data: bytes) -> None:
        hostile_process.watching = True
        try:
            if data[:1] < b"\x80":
                checks.throw(Bytes(data[1:]))
            else:
                checks.check(data[1:])
        finally:
            hostile_process.watching = False

    return target


TARGETS: dict[str, Callable[[Path], Target]] = {
    "filter": filters, "question": questions, "import": imports, "checkpoint": checkpoints,
}  # fmt: skip


def main(arguments: list[str]) -> None:
    if len(arguments) < 2 or arguments[1] not in TARGETS:
        sys.exit(str(__doc__))
    # in memory, where there is such a place: the import target writes some files for each input
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        target: Any = TARGETS[arguments[1]](Path(folder))
        seeds = Path(folder) / "seeds"  # with short inputs alone, all dice would show their least for long
        seeds.mkdir()
        for number in range(100):
            (seeds / str(number)).write_bytes(Random(number).randbytes(20 * number + 1))
        options = ["-max_len=4096", "-len_control=0", "-rss_limit_mb=2048", "-print_final_stats=1"]
        places = [each for each in arguments[2:] if not each.startswith("-")]
        given = [each for each in arguments[2:] if each.startswith("-")]
        atheris.Setup([arguments[0], *options, *given, *places, str(seeds)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
