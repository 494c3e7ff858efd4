"""What embedding costs beyond the time of the server that computes the vectors.

    python tests/bench/embedding.py [ROUNDS]

A server in a process of its own answers with ready-made vectors and tells how long it took. The rest of the time is
spent by the client, the operating system and the embedder. Prints medians; asserts nothing.
"""

from __future__ import annotations

import base64
import http.client
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from openai import OpenAI

from rlm_memory.embedding import OpenAIEmbedder, WordLlamaEmbedder, checked, estimate_tokens
from rlm_memory.errors import MissingExtraError
from rlm_memory.ports import Vector

MODEL = "text-embedding-3-small"
SENTENCE = "The agent fixed the flaky test by pinning the seed of the random generator. "


def texts(number: int, sentences: int = 6) -> list[str]:
    return [f"{number} {index}: " + SENTENCE * sentences for index in range(number)]


def milliseconds(*calls: Callable[[], object], rounds: int, beyond: Callable[[], float] = lambda: 0.0) -> list[float]:
    """The median time of each call, made in turns so that a busy moment of the machine meets them all.

    `beyond` tells, after a call, which of its seconds do not count.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, its_times in zip(calls, times, strict=True):
            started = time.perf_counter()
            call()
            its_times.append(time.perf_counter() - started - beyond())
    return [statistics.median(its_times) * 1000 for its_times in times]


def server_seconds(server: http.client.HTTPConnection) -> float:
    server.request("GET", "/")
    return float(json.loads(server.getresponse().read())["seconds"])


def bare(server: http.client.HTTPConnection, batch: Sequence[str]) -> Vector:
    """The least that must be done: one request over an open connection, the numbers out of the answer."""
    body = json.dumps({"model": MODEL, "input": batch, "encoding_format": "base64"})
    server.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    data = json.loads(server.getresponse().read())["data"]
    return np.stack([np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in data])


def main(rounds: int) -> None:
    program = Path(__file__).parents[1] / "embedding_server.py"
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        server = http.client.HTTPConnection(urlsplit(url).netloc)
        client = OpenAI(base_url=url, api_key="none", max_retries=0)
        embedder = OpenAIEmbedder(MODEL, base_url=url)
        print(f"beyond the server's own time, 1536 dimensions, median of {rounds}, ms")
        print(f"{'texts':>6} {'bare HTTP':>10} {'openai client':>14} {'OpenAIEmbedder':>15}")
        for number in (1, 10, 100):
            batch = texts(number)
            embedder.embed(batch)  # warm: the connection, and the server's vectors
            row = milliseconds(
                partial(bare, server, batch),
                partial(client.embeddings.create, model=MODEL, input=batch),
                partial(embedder.embed, batch),
                rounds=rounds,
                beyond=partial(server_seconds, server),
            )
            print(f"{number:>6} {row[0]:>10.2f} {row[1]:>14.2f} {row[2]:>15.2f}")
        print("goal: a batch of 10 in under 10 ms")
        many = texts(5000)
        embedder.embed(many)
        (spent,) = milliseconds(partial(embedder.embed, many), rounds=3)
        print(f"5,000 texts in requests of 2,048 and less, four at a time, the server's time included: {spent:.0f} ms")
        embedder.close()
        client.close()
        server.close()
        process.stdin.close()

    print("\nin this process, ms")
    matrix = np.random.default_rng(0).standard_normal((2048, 1536)).astype(np.float32)
    lists = matrix[:100].tolist()
    ways: dict[str, Callable[[], object]] = {
        "check 2,048 vectors, one matrix": partial(checked, matrix, 2048, 1536),
        "check 100 vectors, lists of numbers": partial(checked, lists, 100, 1536),
        "estimate the tokens of a megabyte": partial(estimate_tokens, SENTENCE * 13_000),
    }
    local = WordLlamaEmbedder()
    try:
        local.embed_query("warm")
        ways["wordllama, a batch of 10"] = partial(local.embed, texts(10))
        ways["wordllama, a question"] = partial(local.embed_query, SENTENCE)
    except MissingExtraError as error:
        print(f"  {error}")
    for way, spent in zip(ways, milliseconds(*ways.values(), rounds=min(rounds, 20)), strict=True):
        print(f"  {way:<38}{spent:8.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
