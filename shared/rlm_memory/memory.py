"""Memory: one namespace of a store, the way in for everybody.

Validates, embeds, fuses, audits; an engine stores and ranks.
"""

from __future__ import annotations

import builtins
import inspect
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from math import isnan
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

import numpy as np

from rlm_memory import interchange
from rlm_memory.conflicts import repeated
from rlm_memory.conversations import Conversations
from rlm_memory.embedding import OpenAIEmbedder, checked, embedder_model, resolve_embedder
from rlm_memory.engines import open_engine
from rlm_memory.errors import (
    EmbeddingError,
    EmbeddingMismatchError,
    EmbeddingRequestError,
    EmbeddingUnavailableError,
    InvalidInputError,
    InvalidNodeError,
    InvalidQueryError,
    NodeNotFoundError,
)
from rlm_memory.filters import And, Column, Comparison, Filter, Operator, matches, parse_filter
from rlm_memory.interchange import NamespaceCopy
from rlm_memory.key_values import KeyValues
from rlm_memory.keywords import stop_words as stop_word_list
from rlm_memory.lifecycle import Lifecycle
from rlm_memory.location import default_location
from rlm_memory.ports import (
    Candidates,
    Clock,
    Embedder,
    Engine,
    Identity,
    NewModel,
    Progress,
    Scope,
    Vector,
    system_clock,
)
from rlm_memory.promotion import PromotionPolicy
from rlm_memory.records import (
    NODE_TYPES,
    VECTOR_STORAGES,
    Access,
    CheckReport,
    Edge,
    ForgottenAccesses,
    Hit,
    Hits,
    Node,
    NodeType,
    PromotionDecision,
    PromotionLog,
    SessionRecord,
    Stats,
    Tier,
    TierCounts,
    VectorStorage,
)
from rlm_memory.scoring import checked_alpha, checked_relevance, fuse, maximal_marginal_relevance, order, relevance
from rlm_memory.sessions import Session
from rlm_memory.threads import Threads
from rlm_memory.times import milliseconds
from rlm_memory.validation import (
    checked_count,
    checked_id,
    checked_ids,
    checked_namespace,
    checked_node,
    checked_nodes,
    checked_path,
    checked_session_id,
    checked_tiers,
    no_node,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEFAULT_EMBEDDER: Final = "openai:text-embedding-3-small"
DEFAULT_TOKENIZER: Final = "porter unicode61"

_LEAST_CANDIDATES: Final = 20
_CANDIDATES_PER_HIT: Final = 3
_BATCH: Final = 256
_ROUNDS: Final = 3
"""So often `reembed` embeds what others have added meanwhile, before it lets them wait."""
_REMEMBERED_SESSIONS: Final = 256
_DEFAULT_POLICY: Final = PromotionPolicy()

EmbedderSpec: TypeAlias = "str | Embedder | None"
Where: TypeAlias = "Filter | Mapping[str, Any] | None"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Vectors that a step of a call waits for: of texts to be stored, or of one question."""

    texts: tuple[str, ...]
    is_query: bool
    positions: tuple[int, ...] = ()  # where the texts stand in the call that wants their vectors

    @contextmanager
    def named(self) -> Iterator[None]:
        """Let an error tell the items by where they stand in the call, and not among the texts that were sent."""
        try:
            yield
        except EmbeddingRequestError as error:
            items = [self.positions[i] for i in error.positions if i < len(self.positions)]
            if self.is_query or items == list(error.positions):
                raise
            listed = ", ".join(map(str, items[:20])) + (", …" if len(items) > 20 else "")
            raise EmbeddingRequestError(f"{error} In this call they are: {listed}.", items) from error

    def checked(self, answer: Any) -> Vector:
        """Return an embedder's answer as a matrix with a row for each text.

        Raises:
            EmbeddingRequestError: It is not one usable vector for each.
        """
        if self.is_query and _is_zero(answer):  # no direction to compare: the question is searched by its words
            return np.zeros((1, len(answer)), dtype=np.float32)
        return checked([answer] if self.is_query else answer, len(self.texts), None)


Steps: TypeAlias = Generator[Wanted, Vector, T]
"""A call as a generator: it works on the store, yields for vectors and returns the result. Sync and async drive it."""


class Memory:
    """Long-term memory in one file: add texts, find them again by meaning and by words.

    Open it with `Memory.open`, use it from any number of threads, close it or use it as a context manager. Other
    processes may have the same file open.

    >>> with Memory.open(":memory:", embedder=None) as memory:
    ...     ids = memory.add(["Paris is in France.", "Oslo is in Norway."])
    ...     [hit.text for hit in memory.search("Which country has Oslo?", k=1)]
    ['Oslo is in Norway.']
    """

    def __init__(
        self,
        engine: Engine,
        *,
        embedder: EmbedderSpec,
        namespace: str,
        alpha: float,
        policy: PromotionPolicy,
        clock: Clock,
        settings: dict[str, Any],
    ) -> None:
        self._engine = engine
        self._spec = embedder
        self._embedder: Embedder | None = None
        self._settings = settings
        self._sessions: dict[str, Session] = {}
        self._has_vectors = False  # as far as is known: then a question is embedded before the store is read
        self.clock = clock
        self.namespace = namespace
        self.alpha = alpha
        self.conversations = Conversations(engine, clock)
        self.lifecycle = Lifecycle(engine, policy, clock, namespace=namespace, read_only=settings["read_only"])

    @classmethod
    def open(
        cls,
        location: str | PathLike[str] | None = None,
        *,
        embedder: EmbedderSpec = DEFAULT_EMBEDDER,
        namespace: str = "default",
        alpha: float = 0.5,
        policy: PromotionPolicy = _DEFAULT_POLICY,
        tokenizer: str | None = None,
        stop_words: str | Iterable[str] | None = "en",
        embedding_storage: VectorStorage | None = None,
        read_only: bool = False,
        sweep: bool = True,
        clock: Clock = system_clock,
    ) -> Self:
        """Open a store, creating it if there is none.

        Args:
            location: A path, or ":memory:". None: the environment variable RLM_MEMORY_DB, else a file in the user's
                data folder.
            embedder: "openai:MODEL", "model2vec:NAME", "wordllama", an object with `embed` and `embed_query`, or None
                for keyword search alone. It is loaded when it is first needed.
            namespace: The tenant; nothing crosses from one to another.
            alpha: How much meaning counts against words in a search, from 0 (words alone) to 1 (vectors alone).
            policy: The numbers of the rules by which memories change their tier.
            tokenizer: How FTS5 cuts texts into words, for a new store: "porter unicode61" (English stemming) unless
                given. An existing store keeps its own.
            stop_words: Words of a question that the keyword search leaves out: a language such as "en", the words
                themselves, or None.
            embedding_storage: "float32", "int8" or "bit", for a new store: "float32" unless given.
            read_only: Refuse writes, and leave the file and its folder as they are.
            sweep: Make the daily sweep now if it is due and nobody else is writing; False for who calls `sweep`.
            clock: Tells the time.

        Raises:
            EmbeddingMismatchError: The store's vectors are those of another model, or of another length.
            StoreError: The file cannot be opened, was written by a newer release, or is not a store.
            InvalidInputError: An argument cannot be used.
        """
        namespace = checked_namespace(namespace)
        alpha = checked_alpha(alpha)
        if embedding_storage not in (None, *VECTOR_STORAGES):
            expected = ", ".join(VECTOR_STORAGES)
            raise InvalidInputError(f"Unknown embedding_storage {embedding_storage!r}; expected one of {expected}.")
        model = embedder_model(embedder)
        place = default_location() if location is None else location
        settings = {
            "location": place,
            "embedder": embedder,
            "namespace": namespace,
            "alpha": alpha,
            "policy": policy,
            "stop_words": stop_words,
            "read_only": read_only,
            "sweep": sweep,
            "clock": clock,
        }
        engine = open_engine(
            place,
            namespace=namespace,
            tokenizer=tokenizer or DEFAULT_TOKENIZER,
            embedding_storage=embedding_storage or "float32",
            stop_words=stop_word_list(stop_words),
            read_only=read_only,
        )
        memory = cls(
            engine, embedder=embedder, namespace=namespace, alpha=alpha, policy=policy, clock=clock, settings=settings
        )
        try:
            memory._check_identity(model, tokenizer, embedding_storage)
            if not read_only:
                memory.lifecycle.start(sweep=sweep)
        except BaseException:
            engine.close()
            raise
        return memory

    def _check_identity(self, model: str | None, tokenizer: str | None, storage: VectorStorage | None) -> None:
        identity = self._engine.identity()
        for name, asked, kept in (
            ("tokenizer", tokenizer, identity.tokenizer),
            ("embedding_storage", storage, identity.embedding_storage),
        ):
            if asked is not None and asked != kept:
                raise InvalidInputError(
                    f"{self._engine.location} was made with {name}={kept!r} and keeps it; got {asked!r}. "
                    f"Leave {name} out, or export this store and import it into a new one."
                )
        self._check_model(identity, model or "")
        dimensions = inspect.getattr_static(self._spec, "dimensions", None)
        if isinstance(dimensions, int) and identity.dimensions not in (None, dimensions):
            raise self._mismatch(f"{model!r} ({dimensions} dimensions)", f"{identity.dimensions} dimensions")

    def _mismatch(self, ours: str, stored: str) -> EmbeddingMismatchError:
        return EmbeddingMismatchError(
            f"{self._engine.location} holds vectors of {stored}, the embedder is {ours}. "
            "Open it with the same embedder, with embedder=None for keyword search alone, or change its vectors with: "
            f"rlm-memory --db {self._engine.location} reembed --to EMBEDDER"
        )

    @property
    def location(self) -> str:
        """Where the store is: the absolute path of its file, or ":memory:"."""
        return self._engine.location

    @property
    def read_only(self) -> bool:
        """Whether the store was opened for reading alone."""
        return bool(self._settings["read_only"])

    # -- embedding ----------------------------------------------------------------------------------------------

    @property
    def embedder(self) -> Embedder | None:
        """The embedder, loaded now if it was not yet; None for a store of keywords alone."""
        if self._embedder is None and self._spec is not None:
            self._embedder = resolve_embedder(self._spec)
        return self._embedder

    def embedder_for_use(self) -> Embedder:
        """Return the embedder, loaded now if it was not yet.

        Raises:
            EmbeddingUnavailableError: The store was opened without one.
        """
        if (embedder := self.embedder) is None:
            raise EmbeddingUnavailableError("There is no embedder; open the store with one to embed texts.")
        return embedder

    def embed(self, wanted: Wanted) -> Vector:
        """Return the vectors that a step waits for."""
        embedder = self.embedder_for_use()
        with wanted.named():
            return wanted.checked(
                embedder.embed_query(wanted.texts[0]) if wanted.is_query else embedder.embed(list(wanted.texts))
            )

    def _drive(self, steps: Steps[T]) -> T:
        """Run a call to its end, embedding what it asks for."""
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(self.embed(wanted))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # a generator's return value is untyped here

    # -- writing ------------------------------------------------------------------------------------------------

    def add(
        self,
        texts: str | Node | Iterable[str | Node],
        *,
        ids: Sequence[str | None] | None = None,
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        type: NodeType = "fact",
        subtype: str | None = None,
        tier: Tier = "task",
        confidence: float = 0.5,
        provenance: str | None = None,
        embeddings: Sequence[Any] | None = None,
        compute_embedding: bool | Sequence[bool] = True,
        progress: Progress | None = None,
    ) -> builtins.list[str]:
        """Store texts or nodes and return their ids, in order; all of them, or none if one is refused.

        A known id is written again: its text, metadata, type, confidence, provenance and vector are replaced; its
        tier, pin, time of creation and history of use stay. The same id twice: the last one wins. A text that has a
        vector in this namespace is not embedded again. Blank texts get no vector and are found by filters alone.

        Args:
            texts: Texts, `Node` objects, or a mixture.
            ids: An id for each; None or "" in it asks for a new one (a uuid4).
            metadatas: A dict of JSON values for each, None for none.
            type: The type of the texts: "entity", "fact", "experience", "decision" or "snippet".
            subtype: What kind of that they are, in your own words.
            tier: The tier of new nodes.
            confidence: How sure the texts are, from 0 to 1.
            provenance: Where the texts come from.
            embeddings: A vector for each, so that nothing is embedded; None in it for a text without one. They are
                kept with length 1.
            compute_embedding: Whether to embed; for each if a list. What is left out waits for `embed_pending`.
            progress: Called with (done, total) as texts are embedded; `rlm_memory.progress` has a bar for it.

        Raises:
            InvalidNodeError: One of them cannot be stored; nothing was written.
            EmbeddingError: The vectors could not be had; nothing was written.
        """
        return self._drive(
            self.adding(
                texts,
                ids=ids,
                metadatas=metadatas,
                type=type,
                subtype=subtype,
                tier=tier,
                confidence=confidence,
                provenance=provenance,
                embeddings=embeddings,
                compute_embedding=compute_embedding,
                progress=progress,
            )
        )

    def adding(
        self,
        texts: str | Node | Iterable[str | Node],
        *,
        ids: Sequence[str | None] | None = None,
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        type: NodeType = "fact",
        subtype: str | None = None,
        tier: Tier = "task",
        confidence: float = 0.5,
        provenance: str | None = None,
        embeddings: Sequence[Any] | None = None,
        compute_embedding: bool | Sequence[bool] = True,
        progress: Progress | None = None,
    ) -> Steps[builtins.list[str]]:
        """Return the steps of `add`."""
        defaults = Node(
            text="",
            type=type,
            subtype=subtype,
            tier=tier,
            confidence=confidence,
            provenance=provenance,
            namespace=self.namespace,
        )
        nodes = checked_nodes(texts, ids=ids, metadatas=metadatas, defaults=defaults)
        return (yield from self._storing(nodes, embeddings, compute_embedding, progress))

    def _storing(
        self,
        nodes: builtins.list[Node],
        embeddings: Sequence[Any] | None,
        compute_embedding: bool | Sequence[bool],
        progress: Progress | None,
    ) -> Steps[builtins.list[str]]:
        model = self._model
        vectors = self._given_vectors(nodes, embeddings)
        wanted = self._flags(nodes, compute_embedding)
        last = {node.id: position for position, node in enumerate(nodes)}.values()
        if self._spec is not None:
            missing = [i for i in last if wanted[i] and vectors[i] is None and nodes[i].text.strip()]
            texts: dict[str, int] = {}
            for i in missing:
                texts.setdefault(nodes[i].text, i)
            found = yield from self._embedding(texts, progress)
            for i in missing:
                vectors[i] = found[nodes[i].text]
        if last:
            self._add([nodes[i] for i in last], [vectors[i] for i in last], model)
        return [node.id for node in nodes]

    @repeated
    def _add(self, nodes: Sequence[Node], vectors: Sequence[Vector | None], model: str) -> None:
        with self._engine.transaction():
            self._adopt([vector for vector in vectors if vector is not None], model)
            self._put(nodes, vectors)

    def _put(self, nodes: Sequence[Node], vectors: Sequence[Vector | None]) -> None:
        new = self._engine.put(nodes, vectors, milliseconds(self.clock()))
        self.lifecycle.note_new(nodes, new)

    def _embedding(self, texts: Mapping[str, int], progress: Progress | None) -> Steps[dict[str, Vector]]:
        """Return the vector of each text, embedding those that the store does not have.

        `texts` tells of each where it stands in the call.
        """
        vectors = dict(self._engine.known_vectors(texts))
        missing = [text for text in texts if text not in vectors]
        step = len(missing) if progress is None else _BATCH
        for start in range(0, len(missing), step or 1):
            some = missing[start : start + step]
            answer = yield Wanted(tuple(some), is_query=False, positions=tuple(texts[text] for text in some))
            self._check_vectors(answer, self._model)
            vectors.update(zip(some, answer, strict=True))
            if progress is not None:
                progress(len(texts) - len(missing) + start + len(some), len(texts))
        return vectors

    def _given_vectors(
        self, nodes: builtins.list[Node], embeddings: Sequence[Any] | None
    ) -> builtins.list[Vector | None]:
        if embeddings is None:
            return [None] * len(nodes)
        if len(embeddings) != len(nodes):
            raise InvalidNodeError(f"embeddings: expected {len(nodes)}, one for each text, got {len(embeddings)}.")
        positions = [i for i, vector in enumerate(embeddings) if vector is not None]
        try:
            rows = checked(
                [embeddings[i] for i in positions], len(positions), self._engine.identity().dimensions, positions
            )
        except EmbeddingError as error:
            raise InvalidNodeError(f"embeddings: {error}") from error
        vectors: builtins.list[Vector | None] = [None] * len(nodes)
        for i, row in zip(positions, rows, strict=True):
            vectors[i] = row
        return vectors

    @staticmethod
    def _flags(nodes: builtins.list[Node], compute_embedding: bool | Sequence[bool]) -> builtins.list[bool]:
        if isinstance(compute_embedding, bool):
            return [compute_embedding] * len(nodes)
        if len(compute_embedding) != len(nodes):
            raise InvalidNodeError(
                f"compute_embedding: expected {len(nodes)}, one for each text, got {len(compute_embedding)}."
            )
        return list(compute_embedding)

    @property
    def _model(self) -> str:
        """The name of the embedder's model, empty if it is unknown or there is none."""
        return (embedder_model(self._spec) if self._embedder is None else self._embedder.model) or ""

    def _check_vectors(self, vectors: Vector, model: str) -> None:
        """Refuse vectors that cannot be compared with those of the store: another handle may have changed its model."""
        identity = self._engine.identity()
        self._check_model(identity, model)
        if identity.dimensions not in (None, vectors.shape[1]):
            raise self._mismatch(f"one of {vectors.shape[1]} dimensions", f"{identity.dimensions} dimensions")

    def _check_model(self, identity: Identity, model: str) -> None:
        if model and identity.model and model != identity.model:
            raise self._mismatch(f"{model!r}", f"{identity.model!r} ({identity.dimensions} dimensions)")

    def _adopt(self, vectors: builtins.list[Vector], model: str) -> None:
        """Fix the store's model and dimensions with its first vectors; in the transaction that stores them.

        Args:
            vectors: What is to be stored.
            model: The model they were made with, as of the beginning of the call.
        """
        if not vectors:
            return
        self._check_vectors(vectors[0][np.newaxis], model)
        identity = self._engine.identity()
        if identity.dimensions is None or not identity.model:
            unasked = self._embedder is None and isinstance(self._spec, str)  # named, or the default, and never loaded
            if unasked or (self._embedder is not None and self._embedder.dimensions != len(vectors[0])):
                model = ""  # they were given by the caller, and may be of another model
            if identity.dimensions is None or model:
                self._engine.adopt(model=model, dimensions=len(vectors[0]))

    def embed_pending(self, *, progress: Progress | None = None) -> int:
        """Embed the nodes that were stored without a vector; return how many got one.

        Batches are kept as they come: what an interruption leaves is done by the next call, and nothing is paid twice.

        Args:
            progress: Called with (done, total) nodes after each batch; `rlm_memory.progress` has a bar for it.

        Raises:
            EmbeddingError: The vectors could not be had; those of earlier batches are kept.
        """
        return self._drive(self.embedding_pending(progress=progress))

    def embedding_pending(self, *, progress: Progress | None = None) -> Steps[int]:
        """Return the steps of `embed_pending`."""
        self.embedder_for_use()
        model = self._model
        total, done, seen, after = self._engine.stats().pending, 0, 0, None
        while nodes := self._pending(after):
            after = nodes[-1].id
            seen += len(nodes)
            full = [node for node in nodes if node.text.strip()]
            if full:
                found = yield from self._embedding({node.text: i for i, node in enumerate(full)}, None)
                done += self._add_vectors(full, np.stack([found[node.text] for node in full]), model)
            if progress is not None:
                progress(min(seen, total), total)
        return done

    @repeated
    def _add_vectors(self, nodes: Sequence[Node], vectors: Vector, model: str) -> int:
        with self._engine.transaction():
            self._adopt(list(vectors[:1]), model)
            return self._engine.put_vectors([node.id for node in nodes], [node.text for node in nodes], vectors)

    def _pending(self, after: str | None) -> builtins.list[Node]:
        try:
            return self._engine.pending(limit=_BATCH, after=after)
        except NodeNotFoundError:  # it was deleted meanwhile: from the start, where those done do not stand any more
            return self._engine.pending(limit=_BATCH, after=None)

    def reembed(self, embedder: EmbedderSpec, *, progress: Progress | None = None) -> int:
        """Give every node that has a vector one of another model; return how many were embedded now.

        The old vectors serve until all the new ones are there, also for what others add meanwhile; who adds more while
        it is embedded waits in the end. An interrupted call is taken up by the next one with the same model, and two
        calls with the same model at once are one change, which both have made when they return; texts that both are
        embedding are paid twice. It is the whole store that changes, all namespaces.

        Args:
            embedder: The new one, or its name.
            progress: Called with (done, total) nodes after each batch, of those that no earlier call has embedded.

        Raises:
            EmbeddingError: The vectors could not be had; those of earlier batches are kept for the next call.
            EmbeddingMismatchError: Another handle has begun, or finished, a change to another model meanwhile.
        """
        resolved = resolve_embedder(embedder)
        if resolved is None:
            raise InvalidInputError("reembed needs an embedder; to search by keywords alone, open with embedder=None.")
        new = NewModel(resolved.model, resolved.dimensions)
        self._engine.begin_change(new)
        done, ended = 0, False
        for _ in range(_ROUNDS):
            done += self._embed_outdated(resolved, new, progress, done)
            if ended := self._engine.replace_vectors(new):
                break
        if not ended:  # others add faster than that
            with self._engine.transaction(everywhere=True):
                done += self._embed_outdated(resolved, new, progress, done)
                self._engine.replace_vectors(new)
        self._spec, self._embedder = embedder, resolved
        return done

    def _embed_outdated(self, embedder: Embedder, new: NewModel, progress: Progress | None, before: int) -> int:
        """Embed what has no vector of the new model yet, after so many that were embedded before; return how many."""
        total, done = 0, before
        while batch := self._engine.outdated(new, limit=_BATCH):
            if progress is not None and not total:
                total = before + self._engine.count_outdated()
            texts = [text for _, text in batch]
            vectors = checked(embedder.embed(texts), len(texts), new.dimensions)
            self._engine.put_new_vectors(new, [key for key, _ in batch], texts, vectors)
            done += len(batch)
            if progress is not None:
                progress(done, max(total, done))
        return done - before

    def update(self, id: str, **changes: Any) -> Node:
        """Change what is stored of a node and return it as it is now.

        Args:
            id: The node.
            **changes: Any of `text`, `metadata` (replaced as a whole), `type`, `subtype`, `confidence`, `provenance`.
                A new text gets a new vector.

        Raises:
            NodeNotFoundError: There is no such node.
            InvalidNodeError: It could not be stored like that; nothing was written.
        """
        return self._drive(self.updating(id, **changes))

    def updating(self, id: str, **changes: Any) -> Steps[Node]:
        """Return the steps of `update`."""
        if unknown := changes.keys() - _CHANGEABLE:
            raise InvalidNodeError(
                f"update cannot change {', '.join(sorted(unknown))}; expected any of {', '.join(sorted(_CHANGEABLE))}. "
                "A tier is changed with promote, a pin with pin and unpin."
            )
        text = self._changed(id, changes).text
        model = self._model
        found: Mapping[str, Vector] = {}
        if self._spec is not None and "text" in changes and text.strip():
            found = yield from self._embedding({text: 0}, None)
        return self._update(id, changes, found, model)

    @repeated
    def _update(self, id: str, changes: Mapping[str, Any], found: Mapping[str, Vector], model: str) -> Node:
        with self._engine.transaction():
            node = self._changed(id, changes)  # as it is now: others may have written while the text was embedded
            vector = found.get(node.text)
            self._adopt([] if vector is None else [vector], model)
            self._put([node], [vector])
            return self._stored(id)

    def _changed(self, id: str, changes: Mapping[str, Any]) -> Node:
        """Return a node as a call of `update` makes it."""
        if changes.get("metadata", ...) is None:
            changes = {**changes, "metadata": {}}
        return checked_node(replace(self._stored(id), **changes), f"Node {id!r}")

    def _stored(self, id: str) -> Node:
        if found := self._engine.get(checked_ids([id])):
            return found[0]
        raise no_node(id, namespace=self.namespace)

    def delete(self, ids: str | Iterable[str] | None = None, *, where: Where = None) -> int:
        """Delete nodes with their keywords, vectors and history, in any tier; return how many there were.

        Args:
            ids: The nodes; unknown ids are passed over, an empty list deletes nothing.
            where: A filter. With `ids` too, both must hold.

        Raises:
            InvalidInputError: Neither is given, or the filter is empty; `clear` deletes everything.
        """
        condition = parse_filter(where)
        if ids is None and condition is None:
            raise InvalidInputError("delete needs ids or a filter that says something; clear() deletes everything.")
        return self._delete(None if ids is None else checked_ids(ids), condition)

    @repeated
    def _delete(self, ids: builtins.list[str] | None, condition: Filter | None) -> int:
        self.lifecycle.write_down()  # else they would count for a node that gets the id next
        with self._engine.transaction():
            if ids is None:
                deleted = self._engine.delete_where(Scope(condition))
            else:
                nodes = ids if condition is None else [n.id for n in self._engine.get(ids) if matches(condition, n)]
                deleted = self._engine.delete(nodes)
            self.lifecycle.note_deleted(deleted)
        return len(deleted)

    def clear(self) -> int:
        """Delete every node of this namespace, archive and pinned ones too; return how many there were.

        Conversations stay: `conversations.clear` deletes those.
        """
        return self._delete(None, None)

    # -- reading ------------------------------------------------------------------------------------------------

    def get(self, ids: str | Iterable[str], *, as_written: bool = False) -> builtins.list[Node]:
        """Return the nodes with these ids, in this order; unknown ids are left out.

        Args:
            ids: The nodes.
            as_written: Do not write down first what was reported of their use: it is faster, and the last uses may not
                be counted in them.
        """
        if not as_written:
            self.lifecycle.catch_up()
        return self._engine.get(checked_ids(ids))

    def list(
        self,
        *,
        where: Where = None,
        tiers: Iterable[Tier] | None = None,
        include_archived: bool = False,
        limit: int = 100,
        after: str | None = None,
        newest_first: bool = False,
        as_written: bool = False,
    ) -> builtins.list[Node]:
        """Return a page of nodes in the order they were added; looking is not an access.

        Args:
            where: A filter.
            tiers: The tiers to list; all but the archive unless given.
            include_archived: List the archive too.
            limit: How many at most.
            after: The id of the last node of the page before.
            newest_first: The last written first; a node that is written meanwhile moves to the front.
            as_written: Do not write down first what was reported of their use, see `get`.

        Raises:
            NodeNotFoundError: There is no node `after`.
        """
        if not as_written:
            self.lifecycle.catch_up()
        scope = Scope(parse_filter(where), checked_tiers(tiers, include_archived=include_archived))
        if after is not None and not checked_ids([after]):
            raise NodeNotFoundError(f"There is no node {after!r} to go on after; start again without `after`.")
        limit = checked_count("limit", limit)
        return self._engine.select(scope, limit=limit, after=after, newest_first=newest_first)

    def count(self, *, where: Where = None, tiers: Iterable[Tier] | None = None, include_archived: bool = False) -> int:
        """Return how many nodes `list` would show in all."""
        self.lifecycle.catch_up()
        return self._engine.count(Scope(parse_filter(where), checked_tiers(tiers, include_archived=include_archived)))

    def search(
        self,
        query: str | None = None,
        *,
        embedding: Any = None,
        k: int = 4,
        alpha: float | None = None,
        where: Where = None,
        tiers: Iterable[Tier] | None = None,
        types: Iterable[NodeType] | None = None,
        min_confidence: float | None = None,
        min_relevance: float | None = None,
        include_archived: bool = False,
        session: Session | str | None = None,
        mmr: float | None = None,
        fetch_k: int | None = None,
    ) -> Hits:
        """Return the `k` best nodes for a question, the best first; fewer only if fewer pass the filters.

        Every candidate is scored by both legs, each leg is stretched over [0, 1] among the candidates, and
        `score = alpha * semantic + (1 - alpha) * keyword`. Ties: the greater cosine, then the newer, then the id.

        Args:
            query: The question. It is text, never a query language.
            embedding: Its vector, if there is one already; without `query`, the search is by vector alone.
            k: How many.
            alpha: The weight of meaning against words, from 0 to 1; the store's own unless given. With 0 nothing is
                embedded, with 1 no word is looked up.
            where: A filter.
            tiers: The tiers to search; all but the archive unless given.
            types: The types of node to search; all unless given.
            min_confidence: Leave out nodes that are less sure than this.
            min_relevance: Leave out hits whose `relevance` is less than this, from 0 to 1; `k` still come back if so
                many of the candidates pass.
            include_archived: Search the archive too.
            session: The session, or its id, that what is found is reported to: an access of each node. A store that is
                open for reading keeps no accesses.
            mmr: Choose for diversity: 1 is relevance alone, 0 diversity alone (maximal marginal relevance).
            fetch_k: With `mmr`, how many of the best to choose from: 5k, and 20 at least, unless given.

        Raises:
            InvalidQueryError: An argument cannot be used.
            InvalidFilterError: The filter says something that has no meaning.
            EmbeddingError: The question could not be embedded.
        """
        return self._drive(
            self.searching(
                query,
                embedding=embedding,
                k=k,
                alpha=alpha,
                where=where,
                tiers=tiers,
                types=types,
                min_confidence=min_confidence,
                min_relevance=min_relevance,
                include_archived=include_archived,
                session=session,
                mmr=mmr,
                fetch_k=fetch_k,
            )
        )

    def searching(
        self,
        query: str | None = None,
        *,
        embedding: Any = None,
        k: int = 4,
        alpha: float | None = None,
        where: Where = None,
        tiers: Iterable[Tier] | None = None,
        types: Iterable[NodeType] | None = None,
        min_confidence: float | None = None,
        min_relevance: float | None = None,
        include_archived: bool = False,
        session: Session | str | None = None,
        mmr: float | None = None,
        fetch_k: int | None = None,
    ) -> Steps[Hits]:
        """Return the steps of `search`."""
        scope = _scope(where, tiers, types, min_confidence, include_archived)
        k = checked_count("k", k)
        weight = self._weight(query, embedding, alpha)
        least = 0.0 if min_relevance is None else checked_relevance(min_relevance)
        reported_to = None if session is None else self._session_of(session)
        wanted = k if mmr is None else max(k, _fetched(k) if fetch_k is None else checked_count("fetch_k", fetch_k))
        asked: Wanted | None = None
        if embedding is None and weight > 0 and query is not None and query.strip():
            asked = Wanted((query.encode("utf-8", "replace").decode(),), is_query=True)

        @repeated
        def found_by(answer: Vector | None) -> Hits | None:
            """Return None if the question is to be embedded first: without its vector, those of the store score 0."""
            vector = None
            with self._engine.reading():
                if embedding is not None:
                    vector = _query_vector(embedding, self._engine.identity().dimensions)
                elif answer is not None:
                    self._check_vectors(answer, self._model)
                    vector = answer[0] if answer.any() else None
                elif asked is not None and self._engine.identity().dimensions is not None:
                    return None
                found = self._engine.candidates(
                    scope,
                    vector=vector if weight > 0 else None,
                    question=query if weight < 1 else None,
                    n=_fetched(wanted),
                    k=wanted,
                )
                return self._hits(found, weight, least, wanted, k, mmr)

        hits = None if asked is not None and self._has_vectors else found_by(None)
        while hits is None:
            assert asked is not None  # or there would be no vector to wait for
            self._has_vectors = True
            hits = found_by((yield asked))
        if reported_to is not None:
            reported_to.record(hits)
        return hits

    def _weight(self, query: str | None, embedding: Any, alpha: float | None) -> float:
        """Return the alpha of a search: what is asked for, else the store's, else what can be done at all."""
        if query is None and embedding is None:
            raise InvalidQueryError("search needs a query, an embedding, or both.")
        if query is not None and not isinstance(query, str):
            raise InvalidQueryError(f"query is {type(query).__name__}; expected a str.")
        if query is None:
            return 1.0
        if embedding is None and self._spec is None:
            if alpha is not None and checked_alpha(alpha) > 0:
                raise EmbeddingUnavailableError(
                    f"alpha is {alpha}, but this store was opened with embedder=None: it has keyword search alone. "
                    "Leave alpha out, pass alpha=0 or an embedding, or open it with an embedder."
                )
            return 0.0
        return self.alpha if alpha is None else checked_alpha(alpha)

    def _hits(self, found: Candidates, alpha: float, least: float, wanted: int, k: int, mmr: float | None) -> Hits:
        scores = fuse(found.semantic, found.keyword, alpha)
        relevances = relevance(found.semantic, found.coverage)
        fit = np.flatnonzero(relevances >= least)
        best = fit[order(scores[fit], found.semantic[fit], lambda tied: found.origins(fit[tied].tolist()), wanted)]
        if mmr is not None:
            weights = np.nan_to_num(found.semantic[best], nan=0.0) if alpha == 1 else scores[best]
            vectors = self._engine.vectors([found.keys[i] for i in best])
            best = best[maximal_marginal_relevance(weights, vectors, k, mmr)]
        nodes = self._engine.nodes([found.keys[i] for i in best])
        columns = (column[best].tolist() for column in (scores, found.semantic, found.keyword, relevances))
        return Hits(
            Hit(node, score, _raw(semantic), _raw(keyword), relevance)
            for node, score, semantic, keyword, relevance in zip(nodes, *columns, strict=True)
        )

    # -- sessions and tiers ---------------------------------------------------------------------------------------

    def session(self, session_id: str) -> Session:
        """Return a session, a new one or one that goes on: see `Session`."""
        return Session(self, checked_session_id(session_id))

    def _session_of(self, session: Session | str) -> Session:
        """Return the session that a search reports to; named by its id, it goes on from one search to the next."""
        if isinstance(session, Session):
            if session.memory is not self:
                raise InvalidInputError(f"{session!r} is of {session.memory!r}, not of this memory; pass its id here.")
            return session
        if (known := self._sessions.get(checked_session_id(session))) is None:
            if len(self._sessions) >= _REMEMBERED_SESSIONS:
                self._sessions.clear()  # they go on from what is stored
            known = self._sessions[session] = self.session(session)
        return known

    def sessions(self, *, limit: int = 100) -> builtins.list[SessionRecord]:
        """Return the sessions that were active last, the latest first."""
        return self.lifecycle.sessions(checked_count("limit", limit))

    def promote(self, id: str, to_tier: Tier, *, reason: str) -> PromotionDecision:
        """Move a node to any tier by hand, and log it.

        A node moved down starts anew for the rules, which would otherwise move it up again at once.

        Raises:
            NodeNotFoundError: There is no such node.
            InvalidInputError: The tier is unknown, or there is no reason.
        """
        return self.lifecycle.promote(id, to_tier, reason=reason)

    def restore(self, id: str, *, reason: str = "restored") -> PromotionDecision:
        """Bring a node back from the archive to longterm, and log it.

        Raises:
            NodeNotFoundError: There is no such node.
            InvalidInputError: It is not in the archive.
        """
        return self.lifecycle.restore(id, reason=reason)

    def pin(self, id: str, *, reason: str = "pinned") -> PromotionDecision:
        """Keep a node from being archived by rules, and from fading; log it."""
        return self.lifecycle.pin(id, pinned=True, reason=reason)

    def unpin(self, id: str, *, reason: str = "unpinned") -> PromotionDecision:
        """Let the rules archive a node again, and log it."""
        return self.lifecycle.pin(id, pinned=False, reason=reason)

    def sweep(self, now: datetime | None = None, *, dry_run: bool = False) -> builtins.list[PromotionDecision]:
        """End crashed sessions, move what has earned longterm, archive what is long unused; return the moves.

        Then it forgets old accesses one by one, see `PromotionPolicy.keep_accesses_days`. Both are done in many
        transactions, so that others can write in between; what one that fails or is killed has done is kept, and the
        next goes on. It is done by itself when a store is opened, at most once a day, for as long as takes a moment.

        Args:
            now: The moment that counts as the present.
            dry_run: Only tell what would move.

        Raises:
            StoreError: The store failed, or others kept it from writing; what it had moved is in `decisions` of it.
        """
        return self.lifecycle.sweep(now, dry_run=dry_run)

    def explain_promotion(self, id: str) -> PromotionDecision:
        """Return the next move that a rule could make with a node: each condition, what was found, and if it holds.

        Raises:
            NodeNotFoundError: There is no such node.
        """
        return self.lifecycle.explain(id)

    def candidates(self) -> builtins.list[PromotionDecision]:
        """Return an explanation for each used node that lacks a single condition to rise."""
        return self.lifecycle.candidates()

    def promotion_log(self, id: str | None = None, *, since: datetime | None = None) -> PromotionLog:
        """Return the decisions about one node, or about all, the earliest first; a deleted node's too."""
        return self.lifecycle.log(None if id is None else checked_id(id), since)

    def accesses(self, id: str) -> builtins.list[Access]:
        """Return every time a node was handed to a reader that is still known one by one, the earliest first.

        Of those that a sweep has forgotten, `forgotten_accesses` tells how many there were in each session. Both
        together are all: `Node.access_count` of a node that was not imported.
        """
        return self.lifecycle.accesses(checked_id(id))

    def forgotten_accesses(self, id: str) -> builtins.list[ForgottenAccesses]:
        """Return what stays of the accesses of a node that are forgotten one by one: a summary a session.

        `PromotionPolicy.keep_accesses_days` tells when that is. What the rules weigh is not touched by it, and no
        session that a decision names is without its accesses or their summary.
        """
        return self.lifecycle.forgotten_accesses(checked_id(id))

    def timeline(self) -> builtins.list[TierCounts]:
        """Return how today's nodes were spread over the tiers, at each moment that changed it: data for a picture."""
        return self.lifecycle.timeline()

    def plot_tiers(self) -> Axes:
        """Draw `timeline` and return the matplotlib axes.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        from rlm_memory.plots import plot_tiers

        return plot_tiers(self.timeline())

    def links(self, id: str) -> builtins.list[Edge]:
        """Return the links from and to a node."""
        return self._engine.ledger.links(checked_id(id))

    def decay(self, now: datetime | None = None) -> int:
        """Let the confidence of what is not used fade, `confidence * decay_per_day ** days`; return of how many.

        Days count from when a node was last accessed, written, unpinned or faded. Pinned nodes do not fade. Many fade
        in many transactions: what is killed goes on with the next call, and no node fades twice for the same days.
        """
        return self.lifecycle.decay(now)

    def learn(self) -> int:
        """Let each outcome raise or lower, once, the confidence of what it was attached to; return how many did.

        Many are learned in many transactions, in the order they came in; what is killed goes on with the next call.
        """
        return self.lifecycle.learn()

    def consolidate(self, *, where: Where = None, tier: Tier = "task") -> Mapping[str, builtins.list[str]]:
        """Link nodes of a tier that say nearly the same to the best of them, and archive those; nothing is lost.

        The idea of linking and merging notes as they come is A-MEM's (Xu et al. 2025). The best is the most confident,
        then the most accessed, then the newest; pinned nodes come first, and are never archived.

        Args:
            where: Look among these alone, for example those of one task.
            tier: The tier to look in.

        Returns:
            The ids that were archived, by the id of the best.
        """
        nodes, after = builtins.list[Node](), None
        while page := self.list(where=where, tiers=[tier], limit=_BATCH, after=after):
            nodes += page
            after = page[-1].id
        return self.lifecycle.consolidate(nodes)

    # -- what a framework keeps beside the memories ----------------------------------------------------------------

    def threads(self, kind: str) -> Threads:
        """Return the threads of checkpoints of one kind, a framework's name for instance: see `Threads`."""
        return Threads(self._engine, kind, self.clock)

    def key_values(self, collection: str) -> KeyValues:
        """Return a collection of JSON values under keys: see `KeyValues`."""
        return KeyValues(self._engine, collection)

    # -- the store ----------------------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Return what the store holds and what it costs, in nodes and bytes. It walks over the pages of the file."""
        self.lifecycle.catch_up()
        return self._engine.stats()

    def check(self) -> CheckReport:
        """Look for damage in the whole store: true if there is none, else iterate over the problems."""
        return self._engine.check()

    def backup(self, path: str | PathLike[str]) -> None:
        """Write a copy of the whole store to a new file, complete or not at all, while others go on writing.

        Raises:
            InvalidInputError: There is a file already, or it is no path.
            StoreError: The file cannot be written.
        """
        path = checked_path(path)
        self.lifecycle.catch_up()
        self._engine.backup(path)

    def compact(self) -> None:
        """Give the space of deleted nodes back to the file system. Writers wait meanwhile."""
        self._engine.compact()

    def export(self, path: str | PathLike[str], *, progress: Progress | None = None) -> int:
        """Write this namespace, all that it holds, to a new file of JSON lines; return how many nodes.

        Args:
            path: The file.
            progress: Called with (done, total) lines as they are written.

        Raises:
            InvalidInputError: There is a file already, none can be made there, or it is no path.
            StoreFullError: The disk is full, or fails.
        """
        path = checked_path(path)
        self.lifecycle.catch_up()
        return interchange.write(self._engine, path, namespace=self.namespace, progress=progress)

    def import_(self, path: str | PathLike[str], *, history: bool = True, progress: Progress | None = None) -> int:
        """Read a file that `export` wrote, all of it or none; return how many nodes.

        What is in the namespace already stays, with these exceptions: a node whose id is known is replaced, a
        conversation whose key is known, as a whole, and a value under a known key. A promotion log that is there must
        begin as that of the file does, and stays as it is then; a known session stays as it is; a known thread is
        refused. Entries of the log keep their hashes where the name of the namespace is the same and their numbers are
        free; else they are chained anew.

        Args:
            path: The file.
            history: Take all of it. Else nodes with vectors and links, conversations and key-values alone, as what
                joins a namespace with sessions, a log and threads of its own.
            progress: Called with (done, total) bytes of the file as they are read.

        Raises:
            InvalidInputError: It is no path, there is no file that can be read, or a line is not of that format, and is
                named; nothing was written.
            EmbeddingMismatchError: The file has vectors of another model.
            StoreFullError: The disk fails.
        """
        return interchange.read(
            self._engine,
            checked_path(path),
            namespace=self.namespace,
            now_ms=milliseconds(self.clock()),
            note_new=self.lifecycle.note_new,
            history=history,
            progress=progress,
        )

    def copy_to(self, target: Memory, *, progress: Progress | None = None) -> NamespaceCopy:
        """Copy this namespace, all that it holds, into that of another store, of any engine, and compare the two.

        It is written in batches. Killed in the middle and called again, it goes on where it was; of a finished copy
        it makes sure that it is one. This store is read in one state, others may go on writing to it. What was
        reported of use is written down first.

        Args:
            target: A store whose namespace holds nothing, or a copy of this one as far as it got.
            progress: Called with (done, total), of what is written and of what is compared.

        Raises:
            InvalidInputError: The target holds something else, or this namespace has changed since the copy was begun.
            EmbeddingMismatchError: The target has vectors of another model, length or form.
            StoreError: The two differ at the end.
        """
        if self.namespace == target.namespace and _is_same_store(self.location, target.location):
            raise InvalidInputError(f"{self.location} cannot be copied into itself; choose another store or namespace.")
        if not self.read_only:
            self.lifecycle.write_down()
        return interchange.copy(
            self._engine,
            target._engine,
            origin=self.namespace,
            namespace=target.namespace,
            now_ms=milliseconds(target.clock()),
            progress=progress,
        )

    def close(self) -> None:
        """Write down what is queued and release the files. Closing twice is fine."""
        try:
            self.lifecycle.close()
        finally:
            self._engine.close()
            if (own := self.own_embedder) is not None:
                own.close()

    @property
    def own_embedder(self) -> OpenAIEmbedder | None:
        """The embedder whose connections this memory has opened and closes; one of the caller's stays open."""
        if isinstance(self._spec, str) and isinstance(self._embedder, OpenAIEmbedder):
            return self._embedder
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Memory({self._engine.location!r}, namespace={self.namespace!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the way to open the same file again; a store in memory cannot be opened twice."""
        if self._engine.location == ":memory:":
            raise TypeError("A Memory in ':memory:' cannot be pickled or copied: its nodes would be lost. Use a file.")
        return _reopen, ({**self._settings, "location": self._engine.location},)


def _reopen(settings: dict[str, Any]) -> Memory:
    return Memory.open(settings.pop("location"), **settings)


_CHANGEABLE: Final = frozenset({"text", "metadata", "type", "subtype", "confidence", "provenance"})


def _is_same_store(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # by a link too
    except OSError:  # no files
        return one == other != ":memory:"


def _fetched(k: int) -> int:
    """Return how many candidates each leg gives for `k` hits. Measured for 10 hits: 30 a leg rank as well as 50."""
    return max(_LEAST_CANDIDATES, _CANDIDATES_PER_HIT * k)


def _scope(
    where: Where,
    tiers: Iterable[Tier] | None,
    types: Iterable[NodeType] | None,
    min_confidence: float | None,
    include_archived: bool,
) -> Scope:
    conditions: builtins.list[Filter] = []
    if (condition := parse_filter(where)) is not None:
        conditions.append(condition)
    if types is not None:
        listed = [types] if isinstance(types, str) else list(types)
        for type in listed:
            if type not in NODE_TYPES:
                raise InvalidInputError(f"Unknown type {type!r}; expected one of {', '.join(NODE_TYPES)}.")
        conditions.append(Comparison(Column("type"), Operator.IN, listed))
    if min_confidence is not None:
        conditions.append(Comparison(Column("confidence"), Operator.GTE, min_confidence))
    chosen = checked_tiers(tiers, include_archived=include_archived)
    if not conditions:
        return Scope(None, chosen)
    return Scope(conditions[0] if len(conditions) == 1 else And(tuple(conditions)), chosen)


def _query_vector(embedding: Any, dimensions: int | None) -> Vector | None:
    """Return the vector of a question as float32; None if it is zero, which has no direction to compare."""
    try:
        given = np.asarray(embedding)
    except ValueError as error:
        raise InvalidQueryError(f"embedding is no list of numbers: {error}") from error
    if given.ndim != 1 or given.dtype.kind not in "fiu":
        raise InvalidQueryError("embedding must be one list of numbers.")
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite
        vector = given.astype(np.float32)
    if not np.isfinite(vector).all():
        raise InvalidQueryError("embedding must be one list of finite numbers.")
    if dimensions is not None and len(vector) != dimensions:
        raise InvalidQueryError(f"embedding: expected {dimensions} numbers, got {len(vector)}.")
    return vector if vector.any() else None


def _is_zero(answer: object) -> bool:
    """Return whether an embedder's answer is one vector of zeros."""
    try:
        vector = np.asarray(answer)
    except ValueError:  # lists of different lengths in it
        return False
    return vector.ndim == 1 and vector.size > 0 and vector.dtype.kind in "fiu" and not vector.any()


def _raw(score: float) -> float | None:
    return None if isnan(score) else score
