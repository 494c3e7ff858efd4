"""What is used of the package `rlms`, most of it private there, and the proof that the installed version has it.

All that knows rlms imports it from here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Final

from rlm_memory.errors import MissingExtraError
from rlm_memory.integrations import UnsupportedRuntimeError

WANTED: Final = "rlms>=0.1.3,<0.2"

try:
    from rlm.clients import get_client
    from rlm.clients.base_lm import BaseLM
    from rlm.core.lm_handler import LMHandler
    from rlm.core.rlm import RLM as BaseRLM  # noqa: N811  # ours has the same name
    from rlm.core.types import (
        CodeBlock,
        ModelUsageSummary,
        REPLResult,
        RLMChatCompletion,
        RLMIteration,
        UsageSummary,
    )
    from rlm.environments.base_env import extract_tool_value
    from rlm.environments.local_repl import LocalREPL
    from rlm.environments.local_repl import _AnswerDict as AnswerDict
except ImportError as error:
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("rlm."):
        raise MissingExtraError("rlm_memory.integrations.rlms", "rlms") from error
    raise UnsupportedRuntimeError(f"Expected the package {WANTED}; the module rlm lacks a part: {error}.") from error

__all__ = [
    "SCAFFOLD",
    "AnswerDict",
    "BaseLM",
    "BaseRLM",
    "CodeBlock",
    "LocalREPL",
    "ModelUsageSummary",
    "REPLResult",
    "RLMChatCompletion",
    "RLMIteration",
    "UsageSummary",
    "extract_tool_value",
    "get_client",
    "with_globals",
]

SCAFFOLD: Final = {
    "SHOW_VARS": "_show_vars",
    "llm_query": "_llm_query",
    "llm_query_batched": "_llm_query_batched",
    "rlm_query": "_rlm_query",
    "rlm_query_batched": "_rlm_query_batched",
}
"""The functions that the runtime puts into every namespace, and the methods of its REPL that they are."""

_USES: Final[tuple[tuple[type, str, tuple[str, ...], set[str]], ...]] = (
    (
        BaseRLM,
        "completion",
        ("prompt", "root_prompt"),
        {
            "_check_iteration_limits",
            "_check_timeout",
            "_compact_history",
            "_completion_start_time",
            "_completion_turn",
            "_spawn_completion_context",
        },
    ),
    (BaseRLM, "_spawn_completion_context", ("prompt",), {"get_client", "get_environment", "_subcall", "custom_tools"}),
    (BaseRLM, "_completion_turn", ("prompt", "lm_handler", "environment"), {"completion", "execute_code"}),
    (BaseRLM, "_check_timeout", ("iteration", "time_start"), {"max_timeout"}),
    (
        BaseRLM,
        "_check_iteration_limits",
        ("iteration", "iteration_num", "lm_handler"),
        {"get_usage_summary", "_cumulative_cost"},
    ),
    (
        BaseRLM,
        "_compact_history",
        ("lm_handler", "environment", "message_history", "compaction_count"),
        {"append_compaction_entry"},
    ),
    (
        BaseRLM,
        "_subcall",
        ("prompt", "model"),
        {"RLM", "get_client", "_cumulative_cost", "_completion_start_time"},
    ),
    (LMHandler, "get_usage_summary", (), {"get_usage_summary"}),
    (LocalREPL, "setup", (), {"locals", "globals", "_capture_answer"}),
    (LocalREPL, "execute_code", ("code",), {"locals", "globals", "_restore_scaffold", "_temp_cwd"}),
    (LocalREPL, "_restore_scaffold", (), {*SCAFFOLD.values(), "_compaction_history", "compaction"}),
)
"""A class, a method of it, its parameters, and what its code must look up itself for it to find what we put there."""


def _misfits() -> Iterator[str]:
    for owner, name, parameters, names in _USES:
        method = inspect.unwrap(getattr(owner, name, lambda: None))
        if not isinstance(method, FunctionType) or method.__name__ != name:
            yield f"{owner.__name__} has no method {name}"
            continue
        has = tuple(inspect.signature(method).parameters)[1:]
        if has != parameters:
            yield f"{owner.__name__}.{name} takes ({', '.join(has)}), not ({', '.join(parameters)})"
        if missing := sorted(names - set(method.__code__.co_names)):
            yield f"{owner.__name__}.{name} does not use {', '.join(missing)}"


if misfits := list(_misfits()):
    raise UnsupportedRuntimeError(f"Expected the package {WANTED}; in the installed one {'; '.join(misfits)}.")


def with_globals(method: Callable[..., Any], **names: Any) -> Callable[..., Any]:
    """Return the function that is under a method, for which these global names mean something else."""
    function = inspect.unwrap(method)
    assert isinstance(function, FunctionType)
    return FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__)
