"""An export of the first version, as it was written then, is read by this release."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rlm_memory import Memory
from support import SettableClock, WordEmbedder

FILE = Path(__file__).with_name("export-1.jsonl")


@pytest.mark.parametrize("history", [True, False])
def test_nodes_vectors_and_conversations_come_back(clock: SettableClock, history: bool) -> None:
    clock.advance(days=9)
    with Memory.open(":memory:", embedder=WordEmbedder(4), clock=clock) as memory:
        memory.add("mine", ids=["mine"], tier="session")
        assert memory.import_(FILE, history=history) == 3
        ada, bo, pending = memory.get(["ada", "bo", "pending"])
        assert (ada.text, ada.pinned, ada.confidence, ada.access_count) == ("Ada likes green tea.", True, 0.75, 1)
        assert ada.created_at == datetime(2026, 1, 1, tzinfo=UTC)
        assert (bo.tier, dict(bo.metadata)) == ("longterm", {"deep": [None]})
        assert memory.stats().pending == 1
        assert pending.text == "no vector"
        assert memory.search("Bo lives in Rome.", k=1, alpha=1)[0].id == "bo"
        assert [(each.content, each.status) for each in memory.conversations.list("chat")] == [
            ({"says": "Hello"}, "archived"),
            (None, "active"),
        ]
        assert [entry.decision.rule for entry in memory.promotion_log()] == ["added", "added"]
        assert memory.check()
