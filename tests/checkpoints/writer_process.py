"""Another process: puts checkpoints of one session into a store that others write to as well."""

from __future__ import annotations

import sys

from rlm_memory.checkpoints import CheckpointStore, RLMCheckpoint


def main(root: str, name: str, count: int) -> None:
    store = CheckpointStore(root)
    for turn in range(count):
        state = {f"by_{other}": turn if other == name else None for other in "ab"}
        store.put(RLMCheckpoint(session_id="shared", turn=turn, repl_state={**state, "big": [name] * 20_000}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
