"""Another process: runs a session that is stopped before its end."""

from __future__ import annotations

import signal
import sys

from rlm_memory.checkpoints import CheckpointStore, RLMSession


def main(root: str, way: str) -> None:
    session = RLMSession("s", store=CheckpointStore(root, trust="key"), every=0)
    if way == "exit":
        session.start()
        session.namespace["x"] = "the last value"
        print("ready", flush=True)
        return
    with session:
        session.namespace["x"] = "the last value"
        print("ready", flush=True)
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
