"""A LlamaIndex query engine on a store that LangChain has written to: `python -m llamaindex_rlm.demo STORE`.

STORE is a store that `rlm-memory demo` and `langchain_rlm.demo` have made. The model is a stand-in that needs no key:
it answers with the sentence of its context that has most words of the question. In its place goes any LLM.
"""

from __future__ import annotations

import sys
import textwrap
from typing import Any

from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from llamaindex_rlm.retriever import RLMRetriever
from rlm_memory import Memory
from rlm_memory.cli.demo_part import run_part
from rlm_memory.cli.passages import best_sentence

QUESTION = "When is the finally clause executed?"
PROMPT = PromptTemplate("{context_str}\n{query_str}")


class QuotingLLM(CustomLLM):
    """Answers with the sentence above the last line of the prompt that shares most words with that line."""

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex wants to know of a model."""
        return LLMMetadata(model_name="quoting")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the answer."""
        context, _, question = prompt.rpartition("\n")
        return CompletionResponse(text=best_sentence(context, question))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Yield the answer, in one piece."""
        yield self.complete(prompt, formatted=formatted, **kwargs)


def main(path: str) -> None:
    """Ask a query engine a question, and find in the same file what LangChain has added."""
    with Memory.open(path, embedder="wordllama") as memory:
        engine = RetrieverQueryEngine.from_args(
            RLMRetriever(memory, similarity_top_k=3), llm=QuotingLLM(), text_qa_template=PROMPT
        )
        print("LlamaIndex, on the same file: query engine over a retriever")
        print(f"  question  {QUESTION}")
        answer = str(engine.query(QUESTION))
        print(textwrap.fill(answer, 80, initial_indent="  answer    ", subsequent_indent=" " * 12))
        by_langchain = MetadataFilters(filters=[MetadataFilter(key="source", value="LangChain demo")])
        (found,) = RLMRetriever(memory, similarity_top_k=1, filters=by_langchain).retrieve("thousands separator")
        print("\nWhat LangChain has added is there, with its metadata and the tier that its use has earned:")
        print(f"  {found.text}\n  metadata {found.metadata}, tier {memory.get(found.node_id)[0].tier}")


if __name__ == "__main__":
    made_by = "python -m langchain_rlm.demo STORE"
    sys.exit(
        run_part("llamaindex_rlm.demo", sys.argv[1:], main, needs="source", value="LangChain demo", made_by=made_by)
    )
