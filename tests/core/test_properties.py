"""Any sequence of writes, through any handles, leaves what a dict would: in the nodes, the filters and the search."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlm_memory import Memory, Node
from rlm_memory.records import TIERS, VectorStorage
from support import SettableClock, WordEmbedder

WORDS = ("ant", "bee", "cat", "dog", "elk", "设备", "ERR_4711", "\0", "it's", '"')
NAMESPACES = ("default", "default", "tenant")
"""Of the three handles: two share a tenant, the third sees none of their nodes."""

HOSTILE_IDS = ("é", "[", '["default", "0"]', "nul\0id", "x' OR 1=1 --")
# More than a search looks at for a few hits, so that one that looks at the wrong ones is found out.
ids = st.sampled_from([*HOSTILE_IDS, *map(str, range(40))])
texts = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
metadata = st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 2), "s": st.sampled_from(["x", "y"]), "tags": st.lists(st.sampled_from("pq"))}
)
handles = st.integers(0, len(NAMESPACES) - 1)
filters: list[tuple[dict[str, Any], Any]] = [
    ({"n": 1}, lambda found: found.get("n") == 1),
    ({"n": {"$ne": 1}}, lambda found: found.get("n") != 1),
    ({"s": "x", "n": {"$gte": 1}}, lambda found: found.get("s") == "x" and found.get("n", -1) >= 1),
    ({"tags": {"$contains": "p"}}, lambda found: "p" in found.get("tags", [])),
    ({"$not": {"s": {"$exists": True}}}, lambda found: "s" not in found),
]


@dataclass(frozen=True)
class Kept:
    """What the model remembers of a node."""

    node: Node
    has_vector: bool


def told(node: Node) -> tuple[Any, ...]:
    return node.id, node.text, dict(node.metadata), node.type, node.tier, node.confidence


class StoreAgainstDict(RuleBasedStateMachine):
    """A file with three handles, each reopened now and then, beside a dict for each tenant."""

    @initialize(dimensions=st.sampled_from([16, 160]), storage=st.sampled_from(get_args(VectorStorage)))
    def create(self, dimensions: int, storage: VectorStorage) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.embedder = WordEmbedder(dimensions)
        self.storage = storage
        self.clock = SettableClock()
        self.model: dict[str, dict[str, Kept]] = {name: {} for name in NAMESPACES}
        self.opened = [self.open(name) for name in NAMESPACES]
        self.serial = self.turn = 0
        for handle in (0, 2):
            self.add(handle, [(str(i), WORDS[i % 7], {"n": i % 3}, i % 5 > 0) for i in range(40)])

    def open(self, namespace: str) -> Memory:
        return Memory.open(
            self.folder / "memory.db",
            embedder=self.embedder,
            namespace=namespace,
            embedding_storage=self.storage,
            clock=self.clock,
        )

    def distinct(self, text: str) -> str:
        """Return the text with a word of its own, unless it is blank: equal nodes may take each other's place."""
        self.serial += 1
        return f"{text} w{self.serial}" if text.strip() else text

    def at(self, handle: int) -> tuple[Memory, dict[str, Kept]]:
        return self.opened[handle], self.model[NAMESPACES[handle]]

    @rule(handle=handles, items=st.lists(st.tuples(ids, texts, metadata, st.booleans()), max_size=12))
    def add(self, handle: int, items: list[tuple[str, str, dict[str, Any], bool]]) -> None:
        memory, model = self.at(handle)
        items = [(id, self.distinct(text), *others) for id, text, *others in items]
        given, words, described, embedded = ([item[i] for item in items] for i in range(4))
        assert memory.add(words, ids=given, metadatas=described, compute_embedding=embedded) == given
        for id, text, found, compute in dict(zip(given, items, strict=True)).values():
            known = model.get(id)
            kept_vector = known is not None and known.has_vector and known.node.text == text
            tier = known.node.tier if known else "task"
            node = Node(id=id, text=text, metadata=found, tier=tier)
            model[id] = Kept(node, kept_vector or (compute and bool(text.strip())))

    @rule(handle=handles, id=ids, text=st.none() | texts, found=st.none() | metadata)
    def update(self, handle: int, id: str, text: str | None, found: dict[str, Any] | None) -> None:
        memory, model = self.at(handle)
        if id not in model:
            return
        known = model[id]
        changes: dict[str, Any] = {} if found is None else {"metadata": found}
        has_vector = known.has_vector
        if text is not None:
            changes["text"] = self.distinct(text)
            has_vector = bool(text.strip())
        model[id] = Kept(replace(known.node, **changes), has_vector)
        assert told(memory.update(id, **changes)) == told(model[id].node)

    @rule(handle=handles, id=ids, compute=st.booleans())
    def add_again(self, handle: int, id: str, compute: bool) -> None:
        memory, model = self.at(handle)
        if id in model:
            known = model[id]
            memory.add([known.node.text], ids=[id], metadatas=[known.node.metadata], compute_embedding=compute)
            model[id] = Kept(known.node, known.has_vector or (compute and bool(known.node.text.strip())))

    @rule(handle=handles, wanted=st.lists(ids, max_size=4))
    def delete(self, handle: int, wanted: list[str]) -> None:
        memory, model = self.at(handle)
        assert memory.delete(wanted) == len([model.pop(id) for id in set(wanted) if id in model])

    @rule(handle=handles, chosen=st.sampled_from(range(len(filters))))
    def delete_where(self, handle: int, chosen: int) -> None:
        memory, model = self.at(handle)
        where, holds = filters[chosen]
        gone = [id for id, kept in model.items() if holds(kept.node.metadata)]
        assert memory.delete(where=where) == len([model.pop(id) for id in gone])

    @rule(handle=handles, id=ids, tier=st.sampled_from(TIERS))
    def promote(self, handle: int, id: str, tier: Any) -> None:
        memory, model = self.at(handle)
        if id in model:
            memory.promote(id, tier, reason="a test wants it")
            model[id] = replace(model[id], node=replace(model[id].node, tier=tier))

    @rule(handle=handles)
    def embed_pending(self, handle: int) -> None:
        memory, model = self.at(handle)
        waiting = [id for id, kept in model.items() if not kept.has_vector and kept.node.text.strip()]
        assert memory.embed_pending() == len(waiting)
        model.update({id: replace(model[id], has_vector=True) for id in waiting})

    @precondition(lambda self: len(self.model["tenant"]) > 38)
    @rule(handle=handles)
    def clear(self, handle: int) -> None:
        memory, model = self.at(handle)
        assert memory.clear() == len(model)
        model.clear()

    @rule(handle=handles)
    def compact(self, handle: int) -> None:
        self.opened[handle].compact()

    @rule(handle=handles, closed=st.booleans())
    def reopen(self, handle: int, closed: bool) -> None:
        if closed:
            self.opened[handle].close()
        self.opened[handle] = self.open(NAMESPACES[handle])

    @rule(
        handle=handles,
        question=texts,
        alpha=st.sampled_from([0.0, 0.5, 1.0]),
        k=st.integers(0, 12),
        chosen=st.none() | st.sampled_from(range(len(filters))),
        include_archived=st.booleans(),
    )
    def search(
        self, handle: int, question: str, alpha: float, k: int, chosen: int | None, include_archived: bool
    ) -> None:
        where = None if chosen is None else filters[chosen][0]
        self.compare(handle, question, k=k, alpha=alpha, where=where, include_archived=include_archived)

    @invariant()
    def each_handle_notices_what_the_others_have_done(self) -> None:
        self.turn += 1
        self.compare(self.turn % len(NAMESPACES), WORDS[self.turn % 7], k=3, alpha=0.9)

    def compare(self, handle: int, question: str, **options: Any) -> None:
        """Hold a store that has been written to in any way against a new one with the same nodes."""
        memory, model = self.at(handle)
        with Memory.open(":memory:", embedder=self.embedder, embedding_storage=self.storage, clock=self.clock) as fresh:
            fresh.add([kept.node for kept in model.values()], compute_embedding=[k.has_vector for k in model.values()])
            found, expected = (
                [
                    (told(hit.node), hit.score, hit.semantic, hit.keyword, hit.relevance)
                    for hit in each.search(question, **options)
                ]
                for each in (memory, fresh)
            )
        assert found == expected

    @invariant()
    def holds_what_the_dict_holds(self) -> None:
        for handle in range(len(NAMESPACES)):
            memory, model = self.at(handle)
            listed = memory.list(limit=100, include_archived=True)
            assert {node.id: told(node) for node in listed} == {id: told(kept.node) for id, kept in model.items()}
            for where, holds in filters:
                expected = sum(holds(kept.node.metadata) for kept in model.values())
                assert memory.count(where=where, include_archived=True) == expected

    def teardown(self) -> None:
        for memory in self.opened:
            report = memory.check()
            assert report, list(report)
            stats = memory.stats()
            assert stats.with_vector == sum(kept.has_vector for kept in self.model[stats.namespace].values())
            memory.close()
        shutil.rmtree(self.folder)


TestStoreAgainstDict = StoreAgainstDict.TestCase
TestStoreAgainstDict.settings = settings(max_examples=15, stateful_step_count=20)
