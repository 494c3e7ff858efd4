"""An API key that is used everywhere is written nowhere."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

from rlm_memory import Memory, OpenAIEmbedder, RLMError
from rlm_memory.checkpoints import CheckpointStore, RLMSession

KEY = "sk-planted-0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.mark.loopback
@pytest.mark.enable_socket
@pytest.mark.allow_hosts(["127.0.0.1"])
def test_a_planted_key_reaches_no_file_log_error_or_repr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []
    made = OpenAIEmbedder("text-embedding-3-small", api_key=KEY, base_url="http://127.0.0.1:9/v1", max_retries=0)
    with contextlib.closing(made) as own:
        for number, embedder in enumerate([own, "openai:text-embedding-3-small"]):
            with Memory.open(tmp_path / f"{number}.db", embedder=embedder) as memory:
                memory.add(["one", "two"], compute_embedding=False)
                with memory.session("s") as session:
                    memory.search("one", alpha=0, session=session)
                    shown.append(repr(session))
                if embedder is own:
                    with pytest.raises(RLMError) as refused:
                        memory.add("three")
                    shown += [str(refused.value), repr(refused.value), repr(refused.value.__cause__)]
                memory.backup(tmp_path / f"{number}.backup")
                memory.export(tmp_path / f"{number}.jsonl")
                shown += [repr(memory), repr(memory.embedder), repr(memory.stats()), str(list(memory.promotion_log()))]
                session = RLMSession(f"s{number}", store=CheckpointStore(tmp_path / "checkpoints"), namespace={"a": 1})
                session.checkpoint(reason="planted")
                shown.append(repr(session))
    shown.append(caplog.text)
    for text in shown:
        assert KEY not in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert KEY.encode() not in path.read_bytes(), path
