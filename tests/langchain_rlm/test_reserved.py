"""What `RLMStore` and the other adapter keep in the metadata is neither shown to documents nor taken from them."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document

from langchain_rlm import RLMVectorStore
from rlm_memory import Memory, Node
from rlm_memory.errors import InvalidNodeError

pytest.importorskip("langgraph", reason="RLMStore needs the extra langgraph")


def test_an_item_of_the_store_is_a_document_without_what_the_store_keeps() -> None:
    from langchain_rlm import RLMStore

    with Memory.open(":memory:", embedder=None) as memory:
        RLMStore(memory).put(("user", "ada"), "k", {"likes": "tea"})
        (document,) = RLMVectorStore(memory=memory).similarity_search("tea")
        assert document.metadata == {"likes": "tea"}


@pytest.mark.parametrize("key", ["_langgraph", "_langgraph_more", "_llamaindex"])
def test_reserved_keys_are_refused(key: str) -> None:
    with Memory.open(":memory:", embedder=None) as memory:
        with pytest.raises(InvalidNodeError, match=key):
            RLMVectorStore(memory=memory).add_documents([Document(page_content="x", metadata={key: 1})])
        assert memory.count() == 0


def test_a_node_among_texts_is_refused() -> None:
    """Memory.add takes nodes; here their metadata would pass by the check."""
    with Memory.open(":memory:", embedder=None) as memory:
        with pytest.raises(InvalidNodeError, match="Item 1: its text is Node; expected a str"):
            RLMVectorStore(memory=memory).add_texts(["x", Node(text="y", metadata={"_llamaindex": 1})])  # type: ignore[list-item]
        assert memory.count() == 0
