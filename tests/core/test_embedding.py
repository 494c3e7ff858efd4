"""OpenAI's embeddings over a real server on this machine: what is sent, what is tried again, what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI, AzureOpenAI, OpenAI

import rlm_memory.embedding
from embedding_server import (
    Asked,
    Changed,
    EmbeddingServer,
    Hangup,
    Refusal,
    Silence,
    Text,
    encoded,
    vector_of,
    words,
)
from rlm_memory.embedding import OpenAIEmbedder
from rlm_memory.errors import EmbeddingRequestError, EmbeddingUnavailableError, InvalidInputError

pytestmark = [pytest.mark.loopback, pytest.mark.allow_hosts(["127.0.0.1"])]

AT_ONCE = {"retry-after-ms": "1"}
"""Asks the client to try again after a millisecond, so that only the tests of the pauses wait."""

Make = Callable[..., OpenAIEmbedder]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer(dimensions=8) as server:
        yield server


@pytest.fixture
def make(server: EmbeddingServer) -> Iterator[Make]:
    """Makes embedders of a model that is not OpenAI's own, so that vectors may be short; closes them."""
    made: list[OpenAIEmbedder] = []

    def make(model: str = "small", **options: Any) -> OpenAIEmbedder:
        made.append(OpenAIEmbedder(model, **{"base_url": server.url, **options}))
        return made[-1]

    yield make
    for embedder in made:
        embedder.close()


def expected(texts: list[str], dimensions: int = 8) -> np.ndarray:
    return np.stack([vector_of(text, dimensions) for text in texts])


def numbered(count: int) -> list[str]:
    return [f"text {number}" for number in range(count)]


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_vectors_come_back_in_the_order_of_the_texts(server: EmbeddingServer, make: Make) -> None:
    texts = ["one", "two", "one", "三"]
    vectors = make().embed(texts)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert np.array_equal(vectors, expected(texts))
    assert len(server.asked) == 1


def test_a_question_has_the_vector_of_its_text(make: Make) -> None:
    vector = make().embed_query("where?")
    assert vector.dtype == np.float32
    assert np.array_equal(vector, vector_of("where?", 8))


def test_no_texts_need_no_request(server: EmbeddingServer, make: Make) -> None:
    assert make(dimensions=8).embed([]).shape == (0, 8)
    assert server.asked == []


def test_many_texts_go_in_requests_of_2048(server: EmbeddingServer, make: Make) -> None:
    """B075"""
    texts = numbered(5000)
    assert np.array_equal(make().embed(texts), expected(texts))
    assert sorted(len(asked.inputs) for asked in server.asked) == [904, 2048, 2048]


def test_the_batch_size_can_be_lowered(server: EmbeddingServer, make: Make) -> None:
    """B083"""
    texts = numbered(25)
    assert np.array_equal(make(batch_size=10).embed(texts), expected(texts))
    assert sorted(len(asked.inputs) for asked in server.asked) == [5, 10, 10]


def test_a_request_holds_no_more_tokens_than_the_server_takes(server: EmbeddingServer, make: Make) -> None:
    """B075"""
    texts = [f"{number} " + "word " * 7900 for number in range(60)]
    assert np.array_equal(make().embed(texts), expected(texts))
    assert sorted(len(asked.inputs) for asked in server.asked) == [23, 37]
    assert server.tokens == sum(map(words, texts))


def test_texts_are_sent_as_strings_and_vectors_come_in_base64(server: EmbeddingServer, make: Make) -> None:
    """B069"""
    make(dimensions=8).embed(["one", "two"])
    assert server.asked[0].body == {
        "model": "small", "input": ["one", "two"], "dimensions": 8, "encoding_format": "base64",
    }  # fmt: skip


def test_a_server_that_knows_no_base64_is_understood() -> None:
    """B069"""
    with EmbeddingServer(dimensions=8, speaks_base64=False) as server:
        embedder = OpenAIEmbedder("small", base_url=server.url)
        assert np.array_equal(embedder.embed(["one", "two"]), expected(["one", "two"]))
        embedder.close()


@pytest.mark.parametrize(
    "text", ["Hello<|endoftext|>world", "<|fim_prefix|>", "a\0b", "e\u0301", "🏳️\u200d🌈", " padded \n"]
)
def test_texts_arrive_as_they_are(server: EmbeddingServer, make: Make, text: str) -> None:
    """B094"""
    make().embed([text])
    assert server.inputs == [text]


def test_requests_are_in_flight_together() -> None:
    with EmbeddingServer(dimensions=8, together=3) as server:  # answers nothing before three have arrived
        embedder = OpenAIEmbedder("small", base_url=server.url, batch_size=1, max_concurrency=3)
        assert np.array_equal(embedder.embed(numbered(6)), expected(numbered(6)))
        embedder.close()


def test_no_more_requests_are_in_flight_than_allowed(server: EmbeddingServer, make: Make) -> None:
    make(batch_size=1, max_concurrency=2).embed(numbered(12))
    assert server.most_in_flight <= 2


def test_threads_share_an_embedder(server: EmbeddingServer, make: Make) -> None:
    embedder = make(batch_size=3)
    calls = [[f"{call} {text}" for text in range(7)] for call in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(embedder.embed, calls))
    assert all(np.array_equal(answer, expected(texts)) for answer, texts in zip(answers, calls, strict=True))


def test_connections_are_used_again(server: EmbeddingServer, make: Make) -> None:
    embedder = make()
    for text in numbered(5):
        embedder.embed_query(text)
    assert server.connections == 1


# -- what is not sent --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000", "\u2028"])
def test_blank_texts_are_refused_by_position(server: EmbeddingServer, make: Make, blank: str) -> None:
    """B028"""
    with pytest.raises(InvalidInputError, match="Item 1 is blank"):
        make().embed(["a", blank, "b"])
    assert server.asked == []


@pytest.mark.parametrize("thing", [None, 3, b"bytes", ["nested"], {"text": "x"}])
def test_what_is_no_text_is_refused_by_position(server: EmbeddingServer, make: Make, thing: Any) -> None:
    """B110"""
    with pytest.raises(InvalidInputError, match=f"Item 2 is no text but {type(thing).__name__}"):
        make().embed(["a", "b", thing])
    assert server.asked == []


def test_half_a_surrogate_pair_is_refused_by_position(server: EmbeddingServer, make: Make) -> None:
    with pytest.raises(InvalidInputError, match="Item 1 has a lone surrogate at character 2"):
        make().embed(["a", "ab\ud83d"])
    assert server.asked == []


def test_a_text_instead_of_a_list_is_refused(make: Make) -> None:
    with pytest.raises(InvalidInputError, match="embed_query"):
        make().embed("hello")


TOO_LONG = ["word " * 20_000, "钥" * 12_000, "0" * 40_000, "🎉" * 9_000, "a,b;" * 10_000]


@pytest.mark.parametrize("text", TOO_LONG, ids=["20k words", "12k Chinese (B110)", "digits", "emoji", "signs"])
def test_too_long_a_text_is_refused_by_position(server: EmbeddingServer, make: Make, text: str) -> None:
    """B075, B110"""
    with pytest.raises(InvalidInputError, match=r"Item 2 has about \d+ tokens .*small reads 8192 at most.*truncate="):
        make().embed(["a", "b", text, "c"])
    assert server.asked == []


@pytest.mark.parametrize("text", TOO_LONG, ids=["20k words", "12k Chinese (B110)", "digits", "emoji", "signs"])
def test_too_long_a_text_is_cut_by_choice(server: EmbeddingServer, make: Make, text: str) -> None:
    """B075, B110"""
    vectors = make(truncate=True).embed(["a", text, "c"])
    sent = server.inputs[1]
    assert text.startswith(sent)
    assert 1000 < len(sent) < len(text)
    assert np.array_equal(vectors, expected(["a", sent, "c"]))


def test_a_long_text_within_the_limit_is_sent_whole(server: EmbeddingServer, make: Make) -> None:
    text = "word " * 8_000
    make().embed([text])
    assert server.inputs == [text]


def test_the_limit_can_be_that_of_another_model(server: EmbeddingServer, make: Make) -> None:
    with pytest.raises(InvalidInputError, match="small reads 512 at most"):
        make(max_input_tokens=512).embed(["word " * 600])
    make(max_input_tokens=512, truncate=True).embed(["word " * 600])
    assert words(server.inputs[0]) <= 512


# -- what is tried again -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [*(Refusal(status, headers=AT_ONCE) for status in (408, 409, 429, 500, 502, 503, 504, 529))],
    ids=lambda fault: f"HTTP {fault.status}",
)  # fmt: skip
def test_passing_trouble_is_tried_again(server: EmbeddingServer, make: Make, fault: Refusal) -> None:
    server.fail_next(fault, fault)
    assert np.array_equal(make().embed(["one"]), expected(["one"]))
    assert len(server.asked) == 3


def test_retry_after_is_honoured(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Refusal(429, headers={"Retry-After": "1"}))
    make().embed(["one"])
    first, second = server.asked
    assert second.at - first.at >= 1  # without being asked to, the client waits at most half a second


def test_pauses_grow(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Refusal(500), Refusal(500))
    make().embed(["one"])
    first, second, third = (asked.at for asked in server.asked)
    assert 0.3 < second - first < third - second


def test_a_broken_connection_is_tried_again(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Hangup())
    assert np.array_equal(make().embed(["one"]), expected(["one"]))
    assert len(server.asked) == 2


def test_a_server_that_stays_silent_is_asked_again(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Silence())
    assert np.array_equal(make(timeout=0.5).embed(["one"]), expected(["one"]))
    assert len(server.asked) == 2


def test_a_batch_that_waits_does_not_hold_up_the_others(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Refusal(429, headers=AT_ONCE))
    texts = numbered(9)
    assert np.array_equal(make(batch_size=3).embed(texts), expected(texts))
    assert len(server.asked) == 4


def test_patience_ends(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(*[Refusal(429, "slow down", AT_ONCE)] * 9)
    with pytest.raises(EmbeddingRequestError, match="No vectors for items 0 to 1: HTTP 429: slow down"):
        make(max_retries=2).embed(["one", "two"])
    assert len(server.asked) == 3


def test_endless_silence_ends_in_an_error(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Silence())
    with pytest.raises(EmbeddingRequestError, match="item 0: the server did not answer in time"):
        make(timeout=0.5, max_retries=0).embed(["one"])


def test_no_server_at_all_is_said_with_its_address(server: EmbeddingServer) -> None:
    with EmbeddingServer() as gone:
        pass
    with pytest.raises(EmbeddingRequestError, match=f"no connection to {gone.url}"):
        OpenAIEmbedder(base_url=gone.url, max_retries=0).embed(["one"])


# -- what is final -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 403, 404, 413, 422])
def test_a_refusal_is_final(server: EmbeddingServer, make: Make, status: int) -> None:
    server.fail_next(Refusal(status, "not like\nthis."))
    with pytest.raises(EmbeddingRequestError, match=rf"item 0: HTTP {status}: not like this\.$"):
        make().embed(["one"])
    assert len(server.asked) == 1


def test_a_refused_key_is_not_repeated(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Refusal(401, "Incorrect API key provided: sk-secret"))
    with pytest.raises(EmbeddingRequestError, match="does not accept the API key") as caught:
        make(api_key="sk-secret").embed(["one"])
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
def test_key_that_the_server_repeats_is_in_no_traceback(server: EmbeddingServer, make: Make, status: int) -> None:
    key = "sk-secret"  # the lines of this test are in the traceback, too
    server.fail_next(*[Refusal(status, f"The key {key} may not do this.")] * 2)
    with pytest.raises(EmbeddingRequestError) as caught:
        make(api_key=key, max_retries=0).embed(["one"])
    assert key not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "body",
    [
        '{"detail": "The key %s may not do this."}',
        '{"error": "The key %s may not do this."}',
        '["The key %s may not do this."]',
        "The key %s may not do this.",
        "x" * 285 + " The key %s may not do this.",  # of a long explanation the beginning is shown
    ],
)
def test_key_is_shown_in_no_form_that_a_refusal_has(server: EmbeddingServer, make: Make, body: str) -> None:
    key = "sk-secret"
    server.fail_next(Text(body % key, status=400))
    with pytest.raises(EmbeddingRequestError, match=r"HTTP 400: .*The key") as caught:
        make(api_key=key, max_retries=0).embed(["one"])
    assert "sk-" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("credential", ["api_key", "azure_ad_token"])
def test_key_of_azure_is_in_no_traceback(server: EmbeddingServer, credential: str) -> None:
    secret: dict[str, Any] = {credential: "sk-secret"}
    server.fail_next(Refusal(400, "The key sk-secret may not do this."))
    client = AzureOpenAI(azure_endpoint=server.url, api_version="2024-10-21", max_retries=0, **secret)
    with client, pytest.raises(EmbeddingRequestError, match="HTTP 400: The key") as caught:
        OpenAIEmbedder(client=client).embed(["one"])
    assert "sk-secret" not in "".join(traceback.format_exception(caught.value))


def test_refusal_through_a_client_that_shows_no_key_is_told(server: EmbeddingServer) -> None:
    class Front:
        def __init__(self, client: OpenAI) -> None:
            self.embeddings = client.embeddings

    server.fail_next(Refusal(400, "not like this."))
    with OpenAI(api_key="sk-secret", base_url=server.url, max_retries=0) as client:
        embedder = OpenAIEmbedder(client=Front(client))  # type: ignore[arg-type]
        with pytest.raises(EmbeddingRequestError, match=r"HTTP 400: not like this\.$"):
            embedder.embed(["one"])


def test_password_in_the_address_of_a_server_is_not_shown() -> None:
    embedder = OpenAIEmbedder(
        "text-embedding-3-small",
        api_key="sk-secret",
        base_url="http://me:hidden@127.0.0.1:9/v1?key=hidden",
        max_retries=0,
    )
    with contextlib.closing(embedder), pytest.raises(EmbeddingRequestError, match=r"127\.0\.0\.1:9") as caught:
        embedder.embed(["one"])
    assert "hidden" not in "".join(traceback.format_exception(caught.value)) + repr(embedder)


def refuses(text: str) -> Callable[[Asked], Refusal | None]:
    return lambda asked: Refusal(400, "bad text") if text in asked.inputs else None


def test_a_failed_batch_names_its_items_and_stops_the_rest() -> None:
    with EmbeddingServer(dimensions=8, fault=refuses("text 4")) as server:
        embedder = OpenAIEmbedder("small", base_url=server.url, batch_size=2, max_concurrency=1)
        with pytest.raises(EmbeddingRequestError, match="No vectors for items 4 to 5: HTTP 400: bad text"):
            embedder.embed(numbered(10))
        assert [asked.inputs[0] for asked in server.asked] == ["text 0", "text 2", "text 4"]
        embedder.close()


def test_all_batches_that_failed_are_named() -> None:
    with EmbeddingServer(dimensions=8, fault=lambda asked: Refusal(400), together=2) as server:
        embedder = OpenAIEmbedder("small", base_url=server.url, batch_size=3, max_concurrency=2)
        with pytest.raises(EmbeddingRequestError, match="items 0 to 2 and items 3 to 5:"):
            embedder.embed(numbered(6))
        embedder.close()


def test_an_embedder_works_on_after_a_failure(server: EmbeddingServer, make: Make) -> None:
    embedder = make()
    server.fail_next(Refusal(400))
    with pytest.raises(EmbeddingRequestError):
        embedder.embed(["one"])
    assert np.array_equal(embedder.embed(["one"]), expected(["one"]))


# -- answers are checked -----------------------------------------------------------------------------------------------


def replaced(embedding: Any) -> Changed:
    """The right answer with another second vector."""
    return Changed(lambda data: [data[0], {**data[1], "embedding": embedding}, *data[2:]])


UNUSABLE = {
    "too few (B083)": (Changed(lambda data: data[:-1]), "Expected 3 vectors, one a text, got 2"),
    "too many": (Changed(lambda data: [*data, {**data[0], "index": 3}]), "Expected 3 vectors, one a text, got 4"),
    "none (B083)": (Changed(lambda data: []), "Expected 3 vectors, one a text, got 0"),
    "an index twice": (Changed(lambda data: [data[0], data[0], data[2]]), "each once"),
    "an index out of range": (Changed(lambda data: [data[0], data[1], {**data[2], "index": 7}]), "each once"),
    "an index that is no number": (Changed(lambda data: [data[0], data[1], {**data[2], "index": "2"}]), "each once"),
    "one without an index": (Changed(lambda data: [data[0], data[1], {**data[2], "index": None}]), "each once"),
    "no embedding": (Changed(lambda data: [data[0], {"index": 1}, data[2]]), "item 1 .* expected one list of numbers"),
    "a shorter vector": (replaced(encoded([0.5] * 7)), "item 1 .* expected 8 numbers, got 7"),
    "a longer vector": (replaced([0.5] * 9), "item 1 .* expected 8 numbers, got 9"),
    "an empty vector (B148)": (replaced([]), "item 1 .* it is empty"),
    "a nested vector (B148)": (replaced([[0.5] * 8]), "item 1 .* expected one list of numbers"),
    "NaN": (replaced(encoded([float("nan")] * 8)), "item 1 .* its number at 0 is nan"),
    "infinity": (replaced(encoded([1.0] * 7 + [float("inf")])), "item 1 .* its number at 7 is inf"),
    "beyond float32": (replaced([1e300] * 8), "item 1 .* beyond the range of float32"),
    "zero": (replaced(encoded([0.0] * 8)), "item 1 .* it is zero"),
    "words": (replaced(["a"] * 8), "item 1 .* expected one list of numbers"),
    "no base64": (replaced("%%%"), "item 1 .* expected one list of numbers"),
    "half a number in base64": (replaced("AAAAAAA="), "item 1 .* expected one list of numbers"),
    "no JSON": (Text('{"data": [}'), "the answer cannot be read"),
    "a web page": (Text("<html>Welcome</html>", "text/html"), "is this an embeddings server"),
    "another object": (Text('{"error": "overloaded"}'), "is this an embeddings server"),
    "a list": (Text("[1, 2]"), "is this an embeddings server"),
    "nothing": (Text("null"), "is this an embeddings server"),
    "no entries": (Text('{"data": null}'), "is this an embeddings server"),
    "entries that are no objects": (Text('{"data": [1, 2, 3]}'), "item 0 .* expected one list of numbers"),
}


@pytest.mark.parametrize(("answer", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_answer_is_refused(server: EmbeddingServer, make: Make, answer: Any, message: str) -> None:
    """B083, B148"""
    server.fail_next(answer)
    with pytest.raises(EmbeddingRequestError, match=f"No vectors for items 0 to 2: .*{message}"):
        make(dimensions=8).embed(["one", "two", "three"])
    assert len(server.asked) == 1


def test_the_item_named_is_that_of_the_call_not_of_the_request(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Changed(lambda data: data), replaced([0.0] * 8))
    with pytest.raises(EmbeddingRequestError, match=r"for items 3 to 5: The vector of item 4 .* it is zero"):
        make(batch_size=3, max_concurrency=1).embed(numbered(6))


def test_answers_out_of_order_are_put_in_order(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Changed(lambda data: [data[2], data[0], data[1]]))
    assert np.array_equal(make().embed(["one", "two", "three"]), expected(["one", "two", "three"]))


def test_answers_without_numbers_are_taken_in_their_order(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Changed(lambda data: [{"embedding": entry["embedding"]} for entry in data]))
    assert np.array_equal(make().embed(["one", "two"]), expected(["one", "two"]))


def test_requests_must_agree_on_the_length(server: EmbeddingServer, make: Make) -> None:
    server.fail_next(Changed(lambda data: [{"index": 0, "embedding": [0.5] * 5}]))
    with pytest.raises(EmbeddingRequestError, match="different lengths"):
        make(batch_size=1, max_concurrency=1).embed(["one", "two"])


# -- dimensions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "length"),
    [("text-embedding-3-small", 1536), ("text-embedding-3-large", 3072), ("text-embedding-ada-002", 1536)],
)
def test_the_length_of_openais_models_is_known(make: Make, model: str, length: int) -> None:
    """B170"""
    assert make(model).dimensions == length
    assert make(model).model == f"openai:{model}"


def test_a_known_length_is_held_against_the_answer(server: EmbeddingServer, make: Make) -> None:
    """B170"""
    with pytest.raises(EmbeddingRequestError, match="expected 1536 numbers, got 8"):
        make("text-embedding-3-small").embed(["one"])


def test_the_length_of_another_model_is_learned_from_its_vectors(server: EmbeddingServer, make: Make) -> None:
    """B170"""
    embedder = make()
    embedder.embed(["one"])
    assert embedder.dimensions == 8
    assert len(server.asked) == 1


def test_the_server_is_asked_once_for_a_length_nobody_knows(server: EmbeddingServer, make: Make) -> None:
    embedder = make()
    assert (embedder.dimensions, embedder.dimensions) == (8, 8)
    assert len(server.asked) == 1


def test_dimensions_are_asked_of_the_server(server: EmbeddingServer, make: Make) -> None:
    """B157"""
    embedder = make("text-embedding-3-small", dimensions=16)
    assert np.array_equal(embedder.embed(["one"]), expected(["one"], 16))
    assert server.asked[0].body["dimensions"] == 16
    assert embedder.dimensions == 16


def test_a_server_that_ignores_dimensions_is_refused_not_cut(server: EmbeddingServer, make: Make) -> None:
    """B157"""
    server.fail_next(Changed(lambda data: [{"index": 0, "embedding": encoded(vector_of("one", 32))}]))
    with pytest.raises(EmbeddingRequestError, match="expected 16 numbers, got 32"):
        make(dimensions=16).embed(["one"])


# -- keys, clients, arguments ------------------------------------------------------------------------------------------


def test_without_a_key_the_error_says_what_to_do() -> None:
    embedder = OpenAIEmbedder()
    with pytest.raises(EmbeddingUnavailableError) as caught:
        embedder.embed(["one"])
    for way in ("OPENAI_API_KEY", "api_key=", "embedder=None", '"wordllama"', "openai:text-embedding-3-small"):
        assert way in str(caught.value)


def test_a_blank_key_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " \n")
    with pytest.raises(EmbeddingUnavailableError):
        OpenAIEmbedder().embed_query("one")


@pytest.mark.parametrize(
    ("environment", "argument", "sent"),
    [("sk-env\n", None, "sk-env"), ("sk-env", "sk-arg", "sk-arg"), (None, None, "none")],
    ids=["environment", "argument first", "a server of one's own needs none"],
)
def test_the_key_is_found(
    server: EmbeddingServer, make: Make, monkeypatch: pytest.MonkeyPatch, environment: str, argument: str, sent: str
) -> None:
    if environment:
        monkeypatch.setenv("OPENAI_API_KEY", environment)
    make(api_key=argument).embed(["one"])
    assert server.asked[0].headers["authorization"] == f"Bearer {sent}"


def test_the_key_is_not_shown(make: Make) -> None:
    embedder = make(api_key="sk-secret")
    embedder.embed(["one"])
    assert repr(embedder) == "OpenAIEmbedder('small', dimensions=8)"
    assert "sk-secret" not in f"{embedder} {[embedder]!r}"


def test_a_ready_client_is_used_as_it_is(server: EmbeddingServer) -> None:
    server.fail_next(Refusal(429, headers=AT_ONCE))
    with OpenAI(api_key="own", base_url=server.url, max_retries=0, default_headers={"x-team": "blue"}) as client:
        embedder = OpenAIEmbedder("small", client=client)
        with pytest.raises(EmbeddingRequestError, match="429"):
            embedder.embed(["one"])
        assert np.array_equal(embedder.embed(["one"]), expected(["one"]))
        assert server.asked[0].headers["x-team"] == "blue"
        embedder.close()
        assert not client.is_closed()


@pytest.mark.parametrize(
    "setting", [{"api_key": "x"}, {"base_url": "http://127.0.0.1:1/v1"}, {"max_retries": 0}, {"timeout": 1.0}],
    ids=str,
)  # fmt: skip
def test_a_ready_client_has_its_own_settings(setting: dict[str, Any]) -> None:
    (name,) = setting
    with OpenAI(api_key="own") as client, pytest.raises(InvalidInputError, match=f"has its own {name}"):
        OpenAIEmbedder(client=client, **setting)


@pytest.mark.parametrize("client", [AsyncOpenAI(api_key="own"), object(), "https://api"], ids=type)
def test_what_is_no_client_is_refused(client: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"client is an openai\.OpenAI"):
        OpenAIEmbedder(client=client)


@pytest.mark.parametrize(
    "setting",
    [
        {"model": ""}, {"model": None}, {"dimensions": 0}, {"dimensions": -1}, {"dimensions": 1.5},
        {"dimensions": True}, {"batch_size": 0}, {"batch_size": 2049}, {"max_concurrency": 0}, {"max_input_tokens": 0},
        {"max_retries": -1}, {"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")},
        {"base_url": "localhost:1234/v1"}, {"base_url": ""},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_settings_are_refused(setting: dict[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(InvalidInputError, match=f"^{name} "):
        OpenAIEmbedder(**setting)


def run_python(program: str, *arguments: str) -> str:
    path = str(Path(rlm_memory.embedding.__file__).parents[2])
    command = [sys.executable, "-c", program, *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
    return run.stdout


def test_importing_it_loads_no_client_and_no_model() -> None:
    heavy = ["openai", "tiktoken", "wordllama", "model2vec", "tokenizers"]
    program = f"import sys, rlm_memory.embedding; print([name for name in {heavy} if name in sys.modules])"
    assert run_python(program).strip() == "[]"


FORKING = """
import json, os, sys
from rlm_memory.embedding import OpenAIEmbedder
embedder = OpenAIEmbedder("small", base_url=sys.argv[1])
embedder.embed(["before"])
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, json.dumps(embedder.embed(["child"]).tolist()).encode())
    os._exit(0)
os.wait()
print(json.dumps([json.loads(os.read(reader, 100_000)), embedder.embed(["parent"]).tolist()]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_opens_a_connection_of_its_own(server: EmbeddingServer) -> None:
    answers = json.loads(run_python(FORKING, server.url))
    child, parent = (np.array(vectors, np.float32) for vectors in answers)
    assert np.array_equal(child, expected(["child"]))
    assert np.array_equal(parent, expected(["parent"]))
    assert server.connections == 2


# -- awaiting ----------------------------------------------------------------------------------------------------------


async def test_awaiting_gives_the_same_vectors(server: EmbeddingServer, make: Make) -> None:
    embedder = make(batch_size=3)
    texts = numbered(10)
    assert np.array_equal(await embedder.aembed(texts), expected(texts))
    assert np.array_equal(await embedder.aembed_query("where?"), vector_of("where?", 8))
    assert (await embedder.aembed([])).shape == (0, 8)
    assert server.most_in_flight <= 4
    await embedder.aclose()


async def test_awaiting_leaves_the_event_loop_free() -> None:
    with EmbeddingServer(dimensions=8, together=3) as server:  # answers nothing before three calls wait at once
        embedder = OpenAIEmbedder("small", base_url=server.url)
        answers = await asyncio.gather(*map(embedder.aembed_query, numbered(3)))
        assert np.array_equal(np.stack(answers), expected(numbered(3)))
        await embedder.aclose()


async def test_awaiting_keeps_to_the_allowed_concurrency(server: EmbeddingServer, make: Make) -> None:
    embedder = make(batch_size=1, max_concurrency=2)
    await embedder.aembed(numbered(10))
    assert server.most_in_flight <= 2
    await embedder.aclose()


async def test_awaiting_tries_again_and_names_what_failed(server: EmbeddingServer, make: Make) -> None:
    embedder = make(batch_size=2, max_concurrency=1)
    server.fail_next(Refusal(500, headers=AT_ONCE), Changed(lambda data: data), Refusal(400, "bad text"))
    with pytest.raises(EmbeddingRequestError, match="No vectors for items 2 to 3: HTTP 400: bad text"):
        await embedder.aembed(numbered(10))
    assert len(server.asked) == 3
    with pytest.raises(InvalidInputError, match="Item 1 is blank"):
        await embedder.aembed(["a", ""])
    await embedder.aclose()


async def test_awaiting_with_a_ready_client_leaves_the_event_loop_free() -> None:
    with EmbeddingServer(dimensions=8, together=2) as server, OpenAI(api_key="own", base_url=server.url) as client:
        embedder = OpenAIEmbedder("small", client=client)
        answers = await asyncio.gather(*map(embedder.aembed_query, numbered(2)))
        assert np.array_equal(np.stack(answers), expected(numbered(2)))


def test_an_embedder_serves_one_event_loop_after_another(server: EmbeddingServer, make: Make) -> None:
    embedder = make()

    async def ask(text: str) -> np.ndarray:
        vector = await embedder.aembed_query(text)
        await embedder.aclose()
        return vector

    for text in numbered(3):
        assert np.array_equal(asyncio.run(ask(text)), vector_of(text, 8))
