"""Vectors from OpenAI and from servers that speak its protocol."""

from __future__ import annotations

import asyncio
import base64
import inspect
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rlm_memory.embedding.checks import checked, expect_texts
from rlm_memory.embedding.tokens import TokenCount, cut_to_tokens, estimate_tokens, token_count
from rlm_memory.errors import EmbeddingRequestError, EmbeddingUnavailableError, InvalidInputError
from rlm_memory.ports import Vector

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI, OpenAI

DEFAULT_MODEL = "text-embedding-3-small"
INPUTS_PER_REQUEST = 2048
TOKENS_PER_REQUEST = 300_000
TOKENS_PER_INPUT = 8192

_NO_KEY: Final = "none"

_OPENAI_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}


class OpenAIEmbedder:
    """Vectors from OpenAI, or from a server that speaks its protocol, over HTTP.

    Texts are sent as strings, in requests of at most `batch_size` texts and 300,000 tokens, `max_concurrency` of them
    at a time. Rate limits, server errors, time-outs and lost connections are tried again with growing, jittered pauses,
    or after the time the server's `Retry-After` asks for (up to two minutes); other refusals are final. Each answer is
    checked for count, order, length and finite numbers. Thread-safe; a forked process opens its own connections.

    Args:
        model: The provider's name of the model.
        dimensions: The length to ask the model for; None for the model's own. Vectors are never shortened here.
        api_key: Else `OPENAI_API_KEY`, read when the first text is sent. A server of your own (`base_url`) needs none.
        base_url: The address up to and including `/v1`; else `OPENAI_BASE_URL`, else OpenAI's.
        client: A ready `openai.OpenAI` or `openai.AzureOpenAI`. It keeps its own key, address, retries and time-out:
            giving those here as well is an error. It stays the caller's to close.
        batch_size: Texts a request, for servers that take fewer than OpenAI's 2048.
        max_concurrency: Requests in flight in one call.
        max_input_tokens: The longest text the model reads. `token_count` counts its tokens.
        truncate: Cut longer texts instead of refusing them.
        max_retries: Further attempts for each request; 5 if not given.
        timeout: Seconds for each attempt; 60 if not given.

    Raises:
        InvalidInputError: An argument is out of range, or contradicts a ready client.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        dimensions: int | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        client: OpenAI | None = None,
        batch_size: int = INPUTS_PER_REQUEST,
        max_concurrency: int = 4,
        max_input_tokens: int = TOKENS_PER_INPUT,
        truncate: bool = False,
        max_retries: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if not isinstance(model, str) or not model.strip():
            raise InvalidInputError(
                f'model is the name of an embedding model, for example "{DEFAULT_MODEL}": {model!r}'
            )
        _expect_whole("dimensions", dimensions, least=1)
        _expect_whole("batch_size", batch_size, least=1, most=INPUTS_PER_REQUEST)
        _expect_whole("max_concurrency", max_concurrency, least=1)
        _expect_whole("max_input_tokens", max_input_tokens, least=1)
        _expect_whole("max_retries", max_retries, least=0)
        if timeout is not None and not timeout > 0:
            raise InvalidInputError(f"timeout is a number of seconds above 0: {timeout!r}")
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise InvalidInputError(f"base_url starts with http:// or https://: {base_url!r}")
        if client is not None:
            _expect_ready(client, api_key=api_key, base_url=base_url, max_retries=max_retries, timeout=timeout)
        self._name = model
        self._asked_dimensions = dimensions
        self._dimensions = dimensions or _OPENAI_DIMENSIONS.get(model)
        self._api_key = api_key
        self._base_url = base_url
        self._given_client = client
        self._batch_size = batch_size
        self._max_concurrency = max_concurrency
        self._max_input_tokens = max_input_tokens
        self._truncate = truncate
        self._max_retries = 5 if max_retries is None else max_retries
        self._timeout = 60.0 if timeout is None else timeout
        self._clients: dict[int, OpenAI] = {}  # by process
        self._async_clients: dict[asyncio.AbstractEventLoop, AsyncOpenAI] = {}

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self._name!r}, dimensions={self._dimensions})"

    @property
    def model(self) -> str:
        """`openai:` and the model's name."""
        return f"openai:{self._name}"

    @property
    def dimensions(self) -> int:
        """The length of each vector; for a model that is not OpenAI's own, the first use asks the server once."""
        if self._dimensions is None:
            self.embed_query("dimensions")
        assert self._dimensions is not None
        return self._dimensions

    def embed(self, texts: Sequence[str]) -> Vector:
        """Return one vector a text, in order: shape (len(texts), dimensions), float32.

        Raises:
            InvalidInputError: A text is blank, too long or no text; nothing was sent.
            EmbeddingUnavailableError: There is no key.
            EmbeddingRequestError: A request failed for good. The message names its items, and no vectors are returned
                for the others either: requests not yet begun are not sent.
        """
        work = self._plan(texts)
        if not work.batches:
            return work.result()
        client = self._client()
        create = client.embeddings.create

        def ask(batch: _Batch) -> None:
            if not work.failures:
                with work.attempt(batch, client):
                    work.accept(batch, create(**work.request(batch)))

        if len(work.batches) == 1:
            ask(work.batches[0])
        else:
            with ThreadPoolExecutor(min(self._max_concurrency, len(work.batches)), "rlm-embed") as pool:
                list(pool.map(ask, work.batches))
        return self._finish(work)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of a question: shape (dimensions,), float32. Raises what `embed` raises."""
        vector: Vector = self.embed([text])[0]
        return vector

    async def aembed(self, texts: Sequence[str]) -> Vector:
        """Do what `embed` does without holding up the event loop; a ready client works in a thread instead."""
        if self._given_client is not None:
            return await asyncio.to_thread(self.embed, texts)
        # in a thread: a long text takes a while to count, and the client half a second to import
        work, client = await asyncio.to_thread(self._plan_for, texts, asyncio.get_running_loop())
        if client is None:
            return work.result()
        create = client.embeddings.create
        free = asyncio.Semaphore(self._max_concurrency)

        async def ask(batch: _Batch) -> None:
            async with free:
                if not work.failures:
                    with work.attempt(batch, client):
                        work.accept(batch, await create(**work.request(batch)))

        await asyncio.gather(*map(ask, work.batches))
        return self._finish(work)

    async def aembed_query(self, text: str) -> Vector:
        """Do what `embed_query` does without holding up the event loop."""
        vector: Vector = (await self.aembed([text]))[0]
        return vector

    def close(self) -> None:
        """Close the connections that `embed` keeps open; a later call opens new ones."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections that `aembed` keeps open in this event loop."""
        client = self._async_clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _plan(self, texts: Sequence[str]) -> _Work:
        sendable, sizes = self._sendable(texts)
        ranges = split_batches(sizes, items=self._batch_size, tokens=TOKENS_PER_REQUEST)
        batches = [_Batch(positions, sendable[positions.start : positions.stop]) for positions in ranges]
        return _Work(self._name, batches, self._asked_dimensions, self._dimensions)

    def _sendable(self, texts: Sequence[str]) -> tuple[list[str], list[int]]:
        """The texts as they are sent, and a size in tokens, or above, for each."""
        sendable = expect_texts(texts)
        # A token covers at least a byte: short texts, and all questions, need no vocabulary.
        sizes = [len(text.encode()) for text in sendable]
        if max(sizes, default=0) > self._max_input_tokens or sum(sizes) > TOKENS_PER_REQUEST:
            sizes = [self._count(text) for text in sendable]
        for position, size in enumerate(sizes):
            if size > self._max_input_tokens:
                if not self._truncate:
                    raise InvalidInputError(self._too_long(position, size))
                sendable[position] = cut_to_tokens(sendable[position], self._max_input_tokens, self._count)
                sizes[position] = self._max_input_tokens
        return sendable, sizes

    def _too_long(self, position: int, size: int) -> str:
        if self._count is estimate_tokens:
            found = f"about {size} tokens (rlm-memory[tokens], with its vocabulary fetched once, counts exactly)"
        else:
            found = f"{size} tokens"
        return (
            f"Item {position} has {found}, {self._name} reads {self._max_input_tokens} at most. "
            "Split the text, or pass truncate=True to embed its beginning."
        )

    @cached_property
    def _count(self) -> TokenCount:
        return token_count()

    def _finish(self, work: _Work) -> Vector:
        vectors = work.result()
        self._dimensions = vectors.shape[1]
        return vectors

    def _client(self) -> OpenAI:
        if self._given_client is not None:
            return self._given_client
        # The connections of a parent process are not ours to use after a fork. Two threads may both make a client:
        # the first one stored serves both.
        client = self._clients.get(os.getpid())
        if client is None:
            from openai import OpenAI

            client = self._clients.setdefault(os.getpid(), OpenAI(**self._connection()))
        return client

    def _plan_for(self, texts: Sequence[str], loop: asyncio.AbstractEventLoop) -> tuple[_Work, AsyncOpenAI | None]:
        work = self._plan(texts)
        return work, self._async_client(loop) if work.batches else None

    def _async_client(self, loop: asyncio.AbstractEventLoop) -> AsyncOpenAI:
        client = self._async_clients.get(loop)
        if client is None:
            from openai import AsyncOpenAI

            # a client holds its loop, so that no weak reference would ever let go of it
            for ended in [known for known in list(self._async_clients) if known.is_closed()]:
                self._async_clients.pop(ended, None)
            client = self._async_clients.setdefault(loop, AsyncOpenAI(**self._connection()))
        return client

    def _connection(self) -> dict[str, Any]:
        key = (self._api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        own_server = self._base_url or os.environ.get("OPENAI_BASE_URL")
        if not key and not own_server:
            raise EmbeddingUnavailableError(
                f"No API key for {self.model}. Set OPENAI_API_KEY or pass api_key=; or embed without a provider: "
                'embedder="wordllama" runs offline, embedder=None searches by keyword alone.'
            )
        return {
            "api_key": key or _NO_KEY,  # the client insists on one, servers without accounts do not read it
            "base_url": self._base_url,
            "max_retries": self._max_retries,
            "timeout": self._timeout,
        }


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one request carries: consecutive texts, and their positions in the call."""

    positions: range
    texts: list[str]


@dataclass(slots=True)
class _Work:
    """One call of `embed`: what is to be asked, and what came back. Filled from several threads."""

    model: str
    batches: list[_Batch]
    asked_dimensions: int | None
    expected_dimensions: int | None
    answers: dict[range, Vector] = field(default_factory=dict)
    failures: dict[range, tuple[Exception, str]] = field(default_factory=dict)
    """What went wrong with a batch, and how that is told."""

    def request(self, batch: _Batch) -> dict[str, Any]:
        # base64 is a quarter of the bytes of decimal numbers, and spares the client turning them into a list of floats
        request: dict[str, Any] = {"model": self.model, "input": batch.texts, "encoding_format": "base64"}
        return request if self.asked_dimensions is None else {**request, "dimensions": self.asked_dimensions}

    @contextmanager
    def attempt(self, batch: _Batch, client: OpenAI | AsyncOpenAI) -> Iterator[None]:
        from openai import OpenAIError

        try:
            yield
        except (OpenAIError, EmbeddingRequestError, ValueError) as error:  # ValueError: the body is not JSON
            self.failures[batch.positions] = error, _explained(error, _hide_keys(error, client))

    def accept(self, batch: _Batch, response: object) -> None:
        self.answers[batch.positions] = vectors_in(response, batch.positions, self.expected_dimensions)

    def result(self) -> Vector:
        if self.failures:
            failed = sorted(self.failures, key=lambda positions: positions.start)
            error, explanation = self.failures[failed[0]]
            names = " and ".join(map(_named, failed))
            positions = [position for batch in failed for position in batch]
            raise EmbeddingRequestError(f"No vectors for {names}: {explanation}", positions) from error
        answers = [self.answers[batch.positions] for batch in self.batches]
        if not answers:
            return np.empty((0, self.expected_dimensions or 0), np.float32)
        if len({answer.shape[1] for answer in answers}) > 1:
            lengths = ", ".join(f"{b.positions}: {a.shape[1]}" for b, a in zip(self.batches, answers, strict=True))
            raise EmbeddingRequestError(f"The server gave vectors of different lengths ({lengths}).")
        return np.concatenate(answers)


def split_batches(sizes: Sequence[int], *, items: int, tokens: int) -> list[range]:
    """Return consecutive ranges over `sizes`, each as long as `items` and the sum `tokens` allow, and never empty."""
    starts: list[int] = []
    held = math.inf
    for position, size in enumerate(sizes):
        if held + size > tokens or position - starts[-1] == items:
            starts.append(position)
            held = 0
        held += size
    return [range(start, stop) for start, stop in pairwise([*starts, len(sizes)])]


def vectors_in(response: object, positions: range, dimensions: int | None) -> Vector:
    """Return the vectors of an answer of `POST /v1/embeddings`, in the order of the texts that were sent.

    Raises:
        EmbeddingRequestError: The answer is not of that protocol, or its vectors do not pass `checked`.
    """
    data = getattr(response, "data", None)
    if not isinstance(data, Sequence) or isinstance(data, str):
        raise EmbeddingRequestError("The answer has no list of embeddings: is this an embeddings server?")
    indices = [getattr(item, "index", None) for item in data]
    if any(index is not None for index in indices):
        if len(data) == len(positions) and set(indices) != set(range(len(data))):
            raise EmbeddingRequestError(f"The answer does not number its {len(data)} vectors from 0 on, each once.")
        data = sorted(data, key=lambda item: int(item.index))
    return checked([_numbers(getattr(item, "embedding", None)) for item in data], len(positions), dimensions, positions)


def _numbers(embedding: object) -> object:
    if not isinstance(embedding, str):
        return embedding  # a server that does not know base64 sends a list
    try:
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    except ValueError:
        return embedding  # `checked` names the item


def _named(positions: range) -> str:
    return f"item {positions[0]}" if len(positions) == 1 else f"items {positions[0]} to {positions[-1]}"


def _explained(error: Exception, keys: Iterable[str]) -> str:
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    match error:
        case EmbeddingRequestError():
            return str(error)
        case APITimeoutError():
            return "the server did not answer in time. Try again, or raise timeout= or max_retries=."
        case APIConnectionError():
            # an address may have a password or a key in it
            url = error.request.url.copy_with(userinfo=b"", query=None)
            return f"no connection to {url}: {error.__cause__ or error}. Check base_url and the network."
        case APIStatusError(status_code=401):  # its text may repeat the key
            return "HTTP 401: the server does not accept the API key; check OPENAI_API_KEY, or api_key=."
        case APIStatusError(status_code=429):
            return f"HTTP 429: {_first_words(error, keys)}. Lower max_concurrency, or raise max_retries."
        case APIStatusError():
            return f"HTTP {error.status_code}: {_first_words(error, keys)}."
        case _:
            return f"the answer cannot be read: {error}."


def _hide_keys(error: Exception, client: object) -> set[str]:
    """Take the keys that were sent out of what the server has said, and return them.

    Some servers repeat them, and logs show errors with their causes.
    """
    from openai import APIStatusError

    if not isinstance(error, APIStatusError):
        return set()
    # From version 3 on the client takes the key out of the request that an error carries. Before, the request alone
    # has a token of Azure's. What a token provider gave to version 3 is found nowhere.
    places = (error.request.headers, getattr(client, "auth_headers", {}))
    sent = (headers.get(name, "") for headers in places for name in ("Authorization", "api-key"))
    keys = {header.removeprefix("Bearer ") for header in sent} - {"", _NO_KEY}
    error.message = _without(keys, error.message)
    error.args = tuple(_without(keys, each) if isinstance(each, str) else each for each in error.args)
    if isinstance(error.body, dict) and isinstance(said := error.body.get("message"), str):
        error.body["message"] = _without(keys, said)
    return keys


def _without(keys: Iterable[str], text: str) -> str:
    for key in keys:
        text = text.replace(key, "[API key]")
    return text


def _first_words(error: APIStatusError, keys: Iterable[str]) -> str:
    said = error.body.get("message") if isinstance(error.body, dict) else None
    words = " ".join(str(said or error.response.text or "no explanation").split())
    return _without(keys, words)[:300].rstrip(".")


def _expect_whole(name: str, value: int | None, *, least: int, most: int | None = None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidInputError(f"{name} is a whole number {bounds}: {value!r}")


def _expect_ready(client: object, **settings: object) -> None:
    given = [name for name, value in settings.items() if value is not None]
    if given:
        raise InvalidInputError(
            f"A ready client has its own {', '.join(given)}: set that on the client, or leave client out."
        )
    create = getattr(getattr(client, "embeddings", None), "create", None)
    if not callable(create) or inspect.iscoroutinefunction(create):
        raise InvalidInputError(f"client is an openai.OpenAI or openai.AzureOpenAI, not {type(client).__name__}.")
