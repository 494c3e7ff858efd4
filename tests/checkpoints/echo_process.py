"""Another process: reads a value, writes what it has read, and sends that back."""

from __future__ import annotations

import struct
import sys

from rlm_memory.checkpoints import dumps, loads


def main() -> None:
    while header := sys.stdin.buffer.read(8):
        data = sys.stdin.buffer.read(struct.unpack(">Q", header)[0])
        answer = dumps(loads(data, strict=True), strict=True)
        sys.stdout.buffer.write(struct.pack(">Q", len(answer)) + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
