"""Nothing crosses from one namespace to another: no node, no count, no score."""

from __future__ import annotations

import pytest

from rlm_memory.errors import InvalidInputError, NodeNotFoundError
from support import WordEmbedder

TEXTS = ["a cat sat on the mat", "a dog ran in the park", "the cat and the dog", "nothing of the kind"]
IDS = ["1", "2", "3", "4"]


@pytest.fixture
def mine(open_shared):
    memory = open_shared(namespace="mine")
    memory.add(TEXTS, ids=IDS, metadatas=[{"user": "me", "n": i} for i in range(4)])
    memory.add("pending", ids=["pending"], compute_embedding=False)
    memory.session("s").record_access(["1"], turn=1)
    return memory


@pytest.fixture
def theirs(open_shared):
    memory = open_shared(namespace="theirs")
    memory.add([f"their {text}" for text in TEXTS], ids=IDS, metadatas=[{"user": "them", "n": i} for i in range(4)])
    return memory


def state(memory):
    """Return all that a namespace shows of itself."""
    stats = memory.stats()
    return {
        "nodes": memory.list(include_archived=True, limit=1000),
        "counts": (stats.nodes, stats.by_tier, stats.by_type, stats.with_vector, stats.pending),
        "log": [entry.hash for entry in memory.promotion_log()],
        "accesses": [memory.accesses(node.id) for node in memory.list(include_archived=True)],
        "sessions": memory.sessions(),
        "hits": [
            (hit.id, hit.score, hit.semantic, hit.keyword, hit.relevance)
            for alpha in (0, 0.5, 1)
            for hit in memory.search("the cat sat", k=10, alpha=alpha)
        ],
    }


def test_scores_do_not_depend_on_other_namespaces(mine, open_shared):
    """B044 B115"""
    before = state(mine)
    other = open_shared(namespace="theirs")
    other.add(["the cat sat"] * 50 + [f"cat {i}" for i in range(50)], ids=[str(i) for i in range(100)])
    assert state(mine) == before
    other.clear()
    assert state(mine) == before
    assert mine.check()


def test_common_words_elsewhere_are_rare_words_here(open_shared):
    """B115"""
    mine = open_shared(namespace="mine", embedder=None)
    texts = [
        f"filler{i} {'rare ' if i % 25 == 0 else ''}{'frequent ' if i % 3 == 1 else ''}padding{i % 50}"
        for i in range(1000)
    ]
    mine.add(texts, ids=[f"{i:04}" for i in range(1000)])
    other = open_shared(namespace="theirs", embedder=None)
    other.add("something")
    before = [(hit.id, hit.score, hit.keyword) for hit in mine.search("rare frequent", k=20)]
    assert all("rare" in texts[int(id)] for id, *_ in before)
    other.add([f"rare word{i}" for i in range(5000)])
    assert [(hit.id, hit.score, hit.keyword) for hit in mine.search("rare frequent", k=20)] == before


WRITES = {
    "add": lambda memory: memory.add(["the cat"] * 4, ids=IDS),
    "add without ids": lambda memory: memory.add("the cat sat"),
    "update": lambda memory: memory.update("1", text="the cat sat", metadata={"user": "me"}),
    "delete": lambda memory: memory.delete(IDS),
    "delete where": lambda memory: memory.delete(where={"n": {"$gte": 0}}),
    "delete where not": lambda memory: memory.delete(where={"user": {"$ne": "nobody"}}),
    "clear": lambda memory: memory.clear(),
    "embed_pending": lambda memory: memory.embed_pending(),
    "compact": lambda memory: memory.compact(),
    "promote": lambda memory: memory.promote("1", "archive", reason="because"),
    "restore": lambda memory: (memory.promote("1", "archive", reason="because"), memory.restore("1")),
    "pin": lambda memory: memory.pin("1"),
    "unpin": lambda memory: memory.unpin("1"),
    "record_access": lambda memory: (memory.session("s").record_access(IDS), memory.sessions()),
    "outcome": lambda memory: memory.session("s").outcome(True),
    "end": lambda memory: memory.session("s").end(),
    "search in a session": lambda memory: (memory.search("the cat", session="s"), memory.sessions()),
    "sweep": lambda memory: memory.sweep(),
    "decay": lambda memory: memory.decay(),
    "learn": lambda memory: memory.learn(),
    "consolidate": lambda memory: memory.consolidate(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_no_write_reaches_another_namespace(mine, theirs, clock, write):
    """B040 B044 B115"""
    before = state(mine)
    clock.advance(days=100)
    write(theirs)
    assert state(mine) == before
    assert mine.check()


def test_no_read_reaches_another_namespace(mine, theirs, tmp_path):
    """B044 B115"""
    mine.pin("1")
    mine.add("only mine", ids=["only"], metadatas=[{"secret": 1}])
    assert theirs.get(["only", "pending"]) == []
    assert {node.namespace for node in theirs.list()} == {"theirs"}
    assert theirs.count() == theirs.stats().nodes == 4
    assert theirs.count(where={"user": "me"}) == theirs.count(where={"secret": {"$exists": True}}) == 0
    assert {hit.text[:5] for hit in theirs.search("only mine", k=100)} == {"their"}
    assert list(theirs.promotion_log()) == []
    assert theirs.accesses("1") == []
    assert theirs.sessions() == []
    assert theirs.stats().pending == 0
    assert theirs.embed_pending() == 0
    assert theirs.export(tmp_path / "theirs.jsonl") == 4
    assert "mine" not in (tmp_path / "theirs.jsonl").read_text()
    for call in (lambda: theirs.update("only", text="x"), lambda: theirs.list(after="only")):
        with pytest.raises(NodeNotFoundError):
            call()
    assert theirs.delete(["only"]) == 0
    assert mine.get("only")


@pytest.mark.parametrize(
    "where",
    [
        {"x') = '' OR 1=1) -- ": 1},
        {"x') OR 1=1 --": "y"},
        {"$or": [{"n": {"$gte": 0}}, {"n": {"$lt": 0}}]},
        {"$not": {"user": "nobody"}},
        {"$or": [{"user": "me"}, {"user": "them"}]},
        {"node.id": {"$in": [*IDS, "pending"]}},
        {"node.text": {"$like": "%"}},
        {"user": {"$ne": "them"}},
    ],
    ids=str,
)
def test_no_filter_reaches_another_namespace(mine, theirs, where):
    """B044 B053"""
    before = state(mine)
    assert all(node.namespace == "theirs" for node in theirs.list(where=where))
    assert all(hit.node.namespace == "theirs" for hit in theirs.search("a cat", where=where, k=50))
    assert theirs.count(where=where) <= 4
    assert theirs.delete(where=where) <= 4
    assert state(mine) == before


def test_an_imported_file_goes_into_the_namespace_that_imports_it(mine, open_shared, tmp_path):
    mine.export(tmp_path / "mine.jsonl")
    other = open_shared(namespace="theirs")
    other.import_(tmp_path / "mine.jsonl")
    assert {node.namespace for node in other.list()} == {"theirs"}
    assert [node.id for node in other.list()] == [node.id for node in mine.list()]
    other.clear()
    assert mine.count() == 5
    assert mine.check()


ALIKE = [("default", '["default"'), ("a", "A"), ("a", "a\0"), ("a b", "a  b"), ("1", "01"), ("x' OR 1=1 --", "x")]


@pytest.mark.parametrize("names", ALIKE, ids=str)
def test_names_that_look_alike_are_two_namespaces(open_shared, names):
    """B137"""
    ids = ["1", "[", '["default", "1"]', '["a", "1"]']
    for name in names:
        open_shared(namespace=name).add([f"text of {name}"] * 4, ids=ids)
    for name in names:
        memory = open_shared(namespace=name)
        assert {node.text for node in memory.list()} == {f"text of {name}"}
        assert memory.delete(ids[:2]) == 2
    for name in names:
        memory = open_shared(namespace=name)
        assert [node.id for node in memory.list()] == ids[2:]
        assert memory.search(f"text of {name}", k=1, alpha=1)[0].semantic == pytest.approx(1.0, abs=1e-6)
    assert memory.check()


@pytest.mark.parametrize("name", ["00000000-0000-0000-0000-000000000001", "user:1", "a AND b", '"', "用户", "n" * 512])
def test_a_namespace_has_any_name(open_shared, name):
    """B137"""
    memory = open_shared(namespace=name)
    memory.add("a cat", ids=["1"])
    assert memory.search("cat", k=1)[0].node.namespace == name
    assert open_shared(namespace="other").search("cat") == []


@pytest.mark.parametrize("name", ["", None, 5, b"x", "n" * 513, "lone \ud800 surrogate"])
def test_a_name_that_cannot_be_stored_is_refused(open_memory, name):
    with pytest.raises(InvalidInputError, match="namespace"):
        open_memory(namespace=name)


def test_one_model_serves_all_namespaces(open_shared):
    open_shared(namespace="a").add("text")
    other = open_shared(namespace="b", embedder=WordEmbedder(64))
    other.add("text")
    assert other.search("text", k=1, alpha=1)[0].semantic == pytest.approx(1.0, abs=1e-6)
