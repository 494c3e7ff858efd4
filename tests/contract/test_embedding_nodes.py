"""When a text is embedded, what is paid for, and what happens when the vectors cannot be had."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier

import numpy as np
import pytest

from rlm_memory import Node
from rlm_memory.errors import (
    EmbeddingMismatchError,
    EmbeddingRequestError,
    EmbeddingUnavailableError,
    InvalidNodeError,
    InvalidQueryError,
)
from support import WordEmbedder

UNUSABLE = {
    "none": None,
    "nothing": [],
    "a list in a list": [[0.1, 0.2]],
    "text": "0.1",
    "NaN": [float("nan"), 0.0],
    "Inf": [float("inf"), 0.0],
    "beyond float32": [1e39, 0.0],
    "objects": [None, 0.0],
}


class Scripted:
    """Answers what a test tells it to."""

    model = "scripted"
    dimensions = 2

    def __init__(self, answers=None, question=(1.0, 0.0)):
        self.answers = answers or {}
        self.question = question
        self.calls = []

    def embed(self, texts):
        self.calls.append(list(texts))
        return [self.answers.get(text, [1.0, 0.0]) for text in texts]

    def embed_query(self, text):
        return self.question


class Failing(WordEmbedder):
    """Fails at the calls whose numbers it is given."""

    def __init__(self, *failing, **options):
        super().__init__(**options)
        self.failing = set(failing)
        self.calls = 0

    def embed(self, texts):
        self.calls += 1
        if self.calls in self.failing:
            raise EmbeddingRequestError("the provider is down")
        return super().embed(texts)


def cosine(memory, text):
    """Return the cosine of the best hit, None where it has no vector."""
    return memory.search(text, k=1, alpha=1)[0].semantic


def test_blank_texts_are_stored_and_not_sent(memory, embedder):
    """B028"""
    ids = memory.add(["a", "", " ", "b", "\n\t\u3000"])
    assert embedder.asked == ["a", "b"]
    assert [node.text for node in memory.get(ids)] == ["a", "", " ", "b", "\n\t\u3000"]
    assert cosine(memory, "b") == pytest.approx(1.0, abs=1e-6)
    assert memory.stats().with_vector == 2


def test_text_that_looks_like_a_token_is_sent_as_it_is(memory, embedder):
    """B094"""
    memory.add("Hello<|endoftext|>world")
    assert embedder.asked == ["Hello<|endoftext|>world"]


def test_equal_texts_are_paid_once_and_stay_two_nodes(memory, embedder):
    """B100 B122"""
    memory.add(["same", "same"], ids=["a", "b"], metadatas=[{"source": "A"}, {"source": "B"}])
    memory.add(["same", "other"], ids=["a", "c"])
    assert embedder.asked == ["same", "other"]
    found = memory.search("same", k=2, alpha=1)
    assert {hit.id for hit in found} == {"a", "b"}
    assert found[0].semantic == pytest.approx(found[1].semantic, abs=1e-6)


def test_running_again_pays_nothing(memory, embedder):
    """B100"""
    texts = [f"text {i}" for i in range(300)]
    memory.add(texts, ids=[str(i) for i in range(300)])
    embedder.asked.clear()
    memory.add(texts, ids=[str(i) for i in range(300)], progress=lambda done, total: None)
    assert memory.embed_pending() == 0
    assert embedder.asked == []


def test_what_is_deleted_is_paid_again(memory, embedder):
    memory.add("text", ids=["n"])
    memory.delete("n")
    memory.add("text", ids=["n"])
    assert embedder.asked == ["text", "text"]


# -- answers that cannot be used ------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_unusable_vector_leaves_nothing_and_names_its_item(open_memory, answer):
    """B042 B083 B148"""
    memory = open_memory(embedder=Scripted({"bad": answer}))
    with pytest.raises(EmbeddingRequestError, match="In this call they are: 3") as caught:
        memory.add(["", "good", "good", "bad"])
    assert caught.value.positions == (3,)
    assert memory.count() == 0
    assert memory.check()


def test_a_zero_vector_is_refused(open_memory):
    """B012"""
    memory = open_memory(embedder=Scripted({"bad": [0.0, 0.0]}))
    with pytest.raises(EmbeddingRequestError, match=r"item 1.*zero"):
        memory.add(["good", "bad"])
    assert memory.count() == 0


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_wrong_number_of_vectors_leaves_nothing(open_memory, count):
    """B083"""

    class Miscounting(Scripted):
        def embed(self, texts):
            return [[1.0, 0.0]] * count

    memory = open_memory(embedder=Miscounting())
    with pytest.raises(EmbeddingRequestError, match=f"Expected 2 vectors, one a text, got {count}"):
        memory.add(["a", "b"])
    assert memory.count() == 0


def test_vectors_of_different_lengths_leave_nothing(open_memory):
    """B148"""
    memory = open_memory(embedder=Scripted({"bad": [1.0, 0.0, 0.0]}))
    with pytest.raises(EmbeddingRequestError, match="item 1"):
        memory.add(["good", "bad"])
    assert memory.count() == 0


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_unusable_vector_of_a_question_is_refused(open_memory, answer):
    """B042 B083"""
    memory = open_memory(embedder=Scripted(question=answer))
    memory.add("text")
    with pytest.raises(EmbeddingRequestError, match="item 0"):
        memory.search("text")


def test_a_question_without_direction_is_searched_by_its_words(open_memory):
    """B012"""
    memory = open_memory(embedder=Scripted(question=[0.0, 0.0]))
    memory.add(["one text", "another text"])
    hits = memory.search("another", k=2)
    assert [hit.text for hit in hits] == ["another text", "one text"]
    assert [hit.semantic for hit in hits] == [None, None]


@pytest.mark.parametrize("kind", [list, tuple, np.float64, np.float32, np.float16, np.int64])
def test_vectors_of_any_numbers_are_taken(open_memory, kind):
    """B148"""

    class Typed(Scripted):
        def embed(self, texts):
            rows = [[3, 4], [4, 3]][: len(texts)]
            return np.array(rows, dtype=kind) if kind not in (list, tuple) else [kind(row) for row in rows]

    memory = open_memory(embedder=Typed(question=[3, 4]))
    memory.add(["a", "b"])
    assert [(hit.text, round(hit.semantic, 5)) for hit in memory.search("?", alpha=1)] == [("a", 1.0), ("b", 0.96)]


def test_a_failed_batch_leaves_nothing_and_is_tried_again(open_memory):
    """B083"""
    embedder = Failing(2)
    memory = open_memory(embedder=embedder)
    texts = [f"text {i}" for i in range(600)]
    with pytest.raises(EmbeddingRequestError, match="down"):
        memory.add(texts, progress=lambda done, total: None)
    assert memory.count() == 0
    memory.add(texts)
    assert memory.stats().with_vector == 600


# -- vectors given by the caller ------------------------------------------------------------------------------------


def test_given_vectors_are_not_paid_for(memory, embedder):
    """B041"""
    memory.add(["a", "b", "c"], embeddings=[[10.0, *[0.0] * 63], None, np.eye(64)[1] * 1e-3])
    assert embedder.asked == ["b"]
    hits = memory.search(embedding=np.eye(64)[1], k=3)
    assert (hits[0].text, round(hits[0].semantic, 6)) == ("c", 1.0)
    assert memory.stats().with_vector == 3


BAD_GIVEN = {
    "short": [1.0] * 63,
    "long": [1.0] * 65,
    "zero": [0.0] * 64,
    "NaN": [float("nan")] * 64,
    "Inf": [float("-inf")] * 64,
    "beyond float32": [1e39] * 64,
    "texts": ["1"] * 64,
    "a matrix": [[1.0] * 64],
    "a number": 1.0,
    "nothing": [],
}


@pytest.mark.parametrize("vector", BAD_GIVEN.values(), ids=BAD_GIVEN.keys())
def test_a_bad_vector_leaves_nothing_and_names_its_item(memory, embedder, vector):
    """B012 B042 B157"""
    memory.add("first", ids=["n"])
    embedder.asked.clear()
    with pytest.raises(InvalidNodeError, match="item 2"):
        memory.add(["a", "b", "c"], ids=["n", "o", "p"], embeddings=[None, [1.0] * 64, vector])
    assert embedder.asked == []
    assert [(node.id, node.text) for node in memory.list()] == [("n", "first")]
    if vector != BAD_GIVEN["zero"]:
        with pytest.raises(InvalidQueryError, match="embedding"):
            memory.search(embedding=vector)


def test_a_zero_vector_is_no_question(memory):
    """B012"""
    memory.add(["a cat", "a dog"])
    assert memory.search("cat", embedding=[0.0] * 64, k=1)[0].text == "a cat"
    assert [hit.semantic for hit in memory.search(embedding=[0.0] * 64)] == [None, None]


def test_the_first_vectors_fix_the_length(open_memory):
    """B157"""
    memory = open_memory(embedder=None)
    memory.add("a", embeddings=[[1.0, 2.0, 3.0]])
    assert memory.stats().dimensions == 3
    with pytest.raises(InvalidNodeError, match="expected 3 numbers, got 2"):
        memory.add("b", embeddings=[[1.0, 2.0]])
    with pytest.raises(InvalidQueryError, match="expected 3 numbers, got 2"):
        memory.search(embedding=[1.0, 2.0])


def test_the_length_is_that_of_the_first_answer(open_memory):
    """B170"""

    class Untold:
        def embed(self, texts):
            return [[1.0] * 7 for _ in texts]

        def embed_query(self, text):
            return [1.0] * 7

    memory = open_memory(embedder=Untold())
    assert memory.stats().dimensions is None
    memory.add("text")
    assert memory.stats().dimensions == 7


# -- left for later -------------------------------------------------------------------------------------------------


def test_what_is_left_out_is_embedded_later(memory, embedder):
    memory.add(["a", "b"], compute_embedding=False)
    memory.add(["c", "d"], compute_embedding=[True, False])
    memory.add("", ids=["blank"])
    assert embedder.asked == ["c"]
    assert memory.stats().pending == 4
    assert {hit.text for hit in memory.search("d", k=5)} == {"a", "b", "c", "d", ""}
    told = []
    assert memory.embed_pending(progress=lambda done, total: told.append((done, total))) == 3
    assert embedder.asked == ["c", "d", "a", "b", "d"]
    assert told[-1] == (4, 4)
    assert cosine(memory, "d") == pytest.approx(1.0, abs=1e-6)
    assert memory.embed_pending() == 0
    assert memory.check()


def test_an_interrupted_run_is_taken_up_where_it_stopped(open_memory):
    embedder = Failing(2)
    memory = open_memory(embedder=embedder)
    memory.add([f"text {i}" for i in range(600)], compute_embedding=False)
    with pytest.raises(EmbeddingRequestError, match="down"):
        memory.embed_pending()
    paid = len(embedder.asked)
    assert memory.stats().with_vector == paid > 0
    assert memory.embed_pending() == 600 - paid
    assert len(embedder.asked) == 600
    assert memory.check()


def test_a_new_text_waits_when_it_is_not_to_be_embedded(memory):
    memory.add("old text", ids=["n"])
    memory.add("new text", ids=["n"], compute_embedding=False)
    assert cosine(memory, "old text") is None
    assert memory.stats().pending == 1
    memory.add("old text", ids=["m"])
    memory.add("old text", ids=["m"], metadatas=[{"v": 2}], compute_embedding=False)
    assert cosine(memory, "old text") == pytest.approx(1.0, abs=1e-6)


class Interrupted(WordEmbedder):
    """Does something once while texts are being embedded, as another process might."""

    meanwhile = None

    def embed(self, texts):
        if self.meanwhile is not None:
            step, self.meanwhile = self.meanwhile, None
            step()
        return super().embed(texts)


def test_nodes_that_are_deleted_meanwhile_do_not_stop_embed_pending(open_shared):
    embedder = Interrupted()
    memory, other = open_shared(embedder=embedder), open_shared(embedder=None)
    ids = memory.add([f"text {i}" for i in range(600)], compute_embedding=False)
    embedder.meanwhile = lambda: other.delete(ids[200:300])
    assert memory.embed_pending() == 500
    assert memory.stats().pending == 0
    assert memory.check()


def test_texts_that_change_meanwhile_get_no_foreign_vector(open_shared):
    """B026"""
    embedder = Interrupted()
    memory, other = open_shared(embedder=embedder), open_shared(embedder=None)
    memory.add(["one", "two"], ids=["1", "2"], compute_embedding=False)
    embedder.meanwhile = lambda: other.update("2", text="three")
    assert memory.embed_pending() == 1
    assert memory.search("two", k=2, alpha=1)[1].semantic is None
    assert memory.embed_pending() == 1
    assert cosine(memory, "three") == pytest.approx(1.0, abs=1e-6)


# -- without an embedder, and with another one ------------------------------------------------------------------------


def test_without_an_embedder_words_are_searched_and_vectors_refused(open_memory):
    """B134 B057"""
    memory = open_memory(embedder=None)
    memory.add(["a cat", "a dog"])
    assert memory.search("dog", k=1)[0].text == "a dog"
    assert memory.search("dog", k=1, alpha=0)[0].semantic is None
    assert memory.stats().with_vector == 0
    with pytest.raises(EmbeddingUnavailableError, match="embedder=None"):
        memory.search("dog", alpha=0.5)
    with pytest.raises(EmbeddingUnavailableError, match="no embedder"):
        memory.embed_pending()


def test_searching_by_words_alone_embeds_nothing(memory, embedder):
    """B057"""
    memory.add(["a cat", "a dog"])
    embedder.asked.clear()
    memory.search("dog", alpha=0)
    memory.search("", alpha=0.5)
    memory.search("  ", alpha=0.5)
    memory.search("dog", embedding=[1.0] * 64)
    assert embedder.asked == []


def test_another_model_is_refused_on_opening(open_shared):
    """B022 B066"""
    open_shared(embedder=WordEmbedder(64, "one")).add("text")
    with pytest.raises(EmbeddingMismatchError, match=r"'one' \(64 dimensions\).*'two'.*reembed"):
        open_shared(embedder=WordEmbedder(64, "two"))
    with pytest.raises(EmbeddingMismatchError, match=r"64 dimensions.*'one' \(32 dimensions\).*reembed"):
        open_shared(embedder=WordEmbedder(32, "one"))
    with pytest.raises(EmbeddingMismatchError, match="'openai:text-embedding-3-small'"):
        open_shared(embedder="openai:text-embedding-3-small")
    assert open_shared(embedder=None).search("text", k=1)[0].text == "text"


def test_a_model_of_another_length_is_refused_when_it_is_first_used(open_shared):
    """B022 B157"""

    class Untold:
        def embed(self, texts):
            return [[1.0] * 7 for _ in texts]

        def embed_query(self, text):
            return [1.0] * 7

    open_shared(embedder=WordEmbedder(64, "")).add("text")
    memory = open_shared(embedder=Untold())
    for call in (lambda: memory.add("more"), lambda: memory.search("text"), memory.embed_pending):
        if call == memory.embed_pending:
            memory.add("pending", compute_embedding=False)
        with pytest.raises(EmbeddingMismatchError, match=r"64 dimensions.*7 dimensions.*reembed"):
            call()
    assert [node.text for node in memory.list()] == ["text", "pending"]


# -- another model --------------------------------------------------------------------------------------------------


class Upper(WordEmbedder):
    """Another model of the same length: its vectors have nothing to do with those of the first."""

    def _word(self, word):
        return super()._word(word.upper() + "!")


def test_reembedding_gives_every_node_the_vector_of_the_new_model(open_shared):
    """B022 B066"""
    memory = open_shared()
    memory.add(["a cat", "a dog", "", "pending"], compute_embedding=[True, True, True, False])
    open_shared(namespace="other").add("of another namespace")
    told, new = [], Upper(32, "new")
    assert memory.reembed(new, progress=lambda done, total: told.append((done, total))) == 3
    assert sorted(new.asked) == ["a cat", "a dog", "of another namespace"]
    assert told == [(3, 3)]
    assert (memory.stats().embedding_model, memory.stats().dimensions, memory.stats().pending) == ("new", 32, 2)
    assert cosine(memory, "a dog") == pytest.approx(1.0, abs=1e-6)
    assert memory.embed_pending() == 1
    again = open_shared(embedder=Upper(32, "new"), namespace="other")
    assert cosine(again, "of another namespace") == pytest.approx(1.0, abs=1e-6)
    assert memory.check()


def test_reembedding_tells_how_far_it_is_in_all_namespaces(open_shared):
    told = []
    for namespace in ("other", "default"):
        memory = open_shared(namespace=namespace)
        memory.add([f"text {i}" for i in range(300)])
    assert memory.reembed(Upper(64, "new"), progress=lambda done, total: told.append((done, total))) == 600
    assert told == [(256, 600), (512, 600), (600, 600)]


def test_an_interrupted_reembedding_is_taken_up_and_the_old_vectors_serve(open_shared):
    memory = open_shared()
    memory.add([f"text {i}" for i in range(600)])
    new = Failing(2, dimensions=32, model="new")
    with pytest.raises(EmbeddingRequestError, match="down"):
        memory.reembed(new)
    assert cosine(memory, "text 7") == pytest.approx(1.0, abs=1e-6)
    assert memory.stats().dimensions == 64
    memory.add("written meanwhile", ids=["late"])
    memory.update("late", text="changed meanwhile")
    paid, told = len(new.asked), []
    done = open_shared().reembed(new, progress=lambda done, total: told.append((done, total)))
    assert done == 601 - paid
    assert told == [(256, done), (done, done)]
    assert len(new.asked) == 601
    assert open_shared(embedder=new).stats().with_vector == 601
    assert cosine(open_shared(embedder=new), "changed meanwhile") == pytest.approx(1.0, abs=1e-6)
    assert memory.check()


def test_what_an_abandoned_reembedding_left_is_not_mixed_in(open_shared):
    memory = open_shared()
    memory.add([f"text {i}" for i in range(600)])
    with pytest.raises(EmbeddingRequestError, match="down"):
        memory.reembed(Failing(2, dimensions=64, model="abandoned"))
    new = Upper(64, "new")
    assert memory.reembed(new) == 600
    assert len(new.asked) == 600
    assert min(cosine(memory, f"text {i}") for i in range(0, 600, 50)) == pytest.approx(1.0, abs=1e-6)
    assert memory.check()


def test_a_blank_text_with_a_given_vector_does_not_stop_reembedding(open_shared):
    memory = open_shared()
    memory.add(["text", " \u3000\t"], embeddings=[None, [1.0] * 64])

    class Strict(Upper):
        def embed(self, texts):
            assert all(text.strip() for text in texts)
            return super().embed(texts)

    assert memory.reembed(Strict(64, "new")) == 1
    assert (memory.stats().with_vector, memory.stats().pending) == (1, 1)
    assert memory.check()


@pytest.mark.parametrize("dimensions", [64, 32])
def test_other_handles_notice_a_new_model(open_shared, dimensions):
    memory, other = open_shared(), open_shared()
    memory.add(["a cat", "a dog"], ids=["cat", "dog"])
    other.search("cat")
    other.add("pending", ids=["pending"], compute_embedding=False)
    memory.reembed(Upper(dimensions, "new"))
    for call in (
        lambda: other.search("cat"),
        lambda: other.add("a fish"),
        lambda: other.add("a fish", embeddings=[[1.0] * 64]),
        lambda: other.update("cat", text="a fish"),
        other.embed_pending,
    ):
        with pytest.raises((EmbeddingMismatchError, InvalidNodeError), match=r"dimensions|expected 32 numbers"):
            call()
    assert other.search("cat", alpha=0, k=1)[0].text == "a cat"
    assert other.update("cat", metadata={"v": 1}).metadata == {"v": 1}
    assert memory.count() == 3
    assert cosine(memory, "a cat") == pytest.approx(1.0, abs=1e-6)
    assert memory.check()


def test_a_new_model_while_texts_are_embedded_is_noticed_before_they_are_stored(open_shared):
    embedder = Interrupted()
    memory, other = open_shared(embedder=embedder), open_shared(embedder=WordEmbedder())
    other.add("a cat")
    embedder.meanwhile = lambda: other.reembed(Upper(64, "new"))
    with pytest.raises(EmbeddingMismatchError, match="'new'"):
        memory.add("a dog")
    assert [node.text for node in other.list()] == ["a cat"]
    assert other.check()


def test_a_handle_that_changes_the_model_stores_no_vector_of_the_old_one(open_memory):
    embedder = Interrupted()
    memory = open_memory(embedder=embedder)
    memory.add("a cat")
    embedder.meanwhile = lambda: memory.reembed(Upper(64, "new"))
    with pytest.raises(EmbeddingMismatchError, match="'new'"):
        memory.add("a dog")
    assert [node.text for node in memory.list()] == ["a cat"]


def test_two_reembeddings_do_not_mix(open_shared):
    memory, other = open_shared(), open_shared()
    memory.add([f"text {i}" for i in range(300)])

    first = Interrupted(64, "first")
    first.meanwhile = lambda: other.reembed(Upper(64, "second"))
    with pytest.raises(EmbeddingMismatchError, match="somebody else"):
        memory.reembed(first)
    assert memory.stats().embedding_model == "second"
    assert open_shared(embedder=Upper(64, "second")).search("text 7", k=1, alpha=1)[0].semantic == pytest.approx(1.0)
    assert memory.check()


def test_reembedding_is_joined_by_who_wants_the_same_model(open_shared):
    memory, other = open_shared(), open_shared()
    memory.add([f"text {i}" for i in range(300)])
    new = Interrupted(64, "new")
    new.meanwhile = lambda: other.reembed(WordEmbedder(64, "new"))
    assert memory.reembed(new) == len(new.asked) == 256, "the batch that was on its way when the other one had ended it"
    assert (memory.stats().embedding_model, memory.stats().with_vector) == ("new", 300)
    memory.add("of the new model")
    assert memory.check()


@pytest.mark.parametrize("namespaces", [["default", "default"], ["default", "other"]], ids=["one", "two"])
def test_reembeddings_to_one_model_at_once_leave_no_node_without_a_vector(open_shared, namespaces):
    """While others add, who are told when their model is not that of the store any more."""
    handles = [open_shared(namespace=name) for name in namespaces]
    adding = [open_shared(namespace=name) for name in ("default", "other")]
    for number, memory in enumerate(adding):
        memory.add([f"text {number} {i}" for i in range(300)])
    start = Barrier(4)

    def change(memory):
        start.wait()
        return memory.reembed(Upper(64, "new"))

    def add(memory):
        start.wait()
        with pytest.raises(EmbeddingMismatchError):  # noqa: PT012 - each add but the last succeeds
            for number in count():
                memory.add(f"added {number}")
        return memory.count()

    with ThreadPoolExecutor(4) as pool:
        changes = [pool.submit(change, memory) for memory in handles]
        counts = [pool.submit(add, memory) for memory in adding]
    assert sum(each.result() for each in changes) >= sum(each.result() for each in counts)
    for memory, counted in zip(adding, counts, strict=True):
        stats = memory.stats()
        assert (stats.embedding_model, stats.nodes, stats.pending) == ("new", counted.result(), 0)
        assert memory.check()


def test_an_interrupted_reembedding_leaves_nothing_to_one_of_another_length(open_shared):
    memory = open_shared()
    memory.add([f"text {i}" for i in range(300)])
    with pytest.raises(EmbeddingRequestError, match="down"):
        memory.reembed(Failing(2, dimensions=32, model="new"))
    assert memory.reembed(Upper(16, "new")) == 300
    assert (memory.stats().dimensions, memory.stats().pending) == (16, 0)
    assert cosine(memory, "text 7") == pytest.approx(1.0, abs=1e-6)


def test_reembedding_needs_an_embedder(memory):
    with pytest.raises(ValueError, match="needs an embedder"):
        memory.reembed(None)


def test_a_node_keeps_its_given_vector_when_other_things_change(memory):
    memory.add(Node(text="text", id="n"), embeddings=[np.eye(64)[3]])
    memory.update("n", confidence=1.0)
    assert memory.search(embedding=np.eye(64)[3], k=1)[0].semantic == pytest.approx(1.0, abs=1e-6)
