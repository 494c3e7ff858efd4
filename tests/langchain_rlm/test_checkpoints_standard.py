"""LangGraph's own conformance suite, every ability detected and passed, on a file, in memory and on a server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import BASE_CAPABILITIES, EXTENDED_CAPABILITIES

from langchain_rlm import RLMSaver
from postgres_server import emptied

BASE_TESTS, EXTENDED_TESTS = 58, 23


@pytest.mark.parametrize("place", ["file", "memory", "server"])
async def test_every_ability_is_detected_and_passes(
    request: pytest.FixtureRequest, place: str, tmp_path: Path, caplog: Any
) -> None:
    caplog.set_level(logging.ERROR)
    opened = iter(range(1000))
    server = request.getfixturevalue("postgres_server") if place == "server" else None

    @checkpointer_test(name="RLMSaver")
    async def saver() -> AsyncIterator[RLMSaver]:
        path: Any = tmp_path / f"{next(opened)}.db" if place == "file" else None
        if server is not None:
            emptied(path := server)
        async with RLMSaver(path) as opened_saver:
            yield opened_saver
            assert opened_saver.memory.check()

    report = await validate(saver)
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert not failures
    assert report.passed_all()
    assert report.conformance_level() == "FULL"
    counted = {name: result.tests_passed for name, result in report.results.items() if result.detected}
    base = {str(getattr(ability, "value", ability)) for ability in BASE_CAPABILITIES}
    extended = {str(getattr(ability, "value", ability)) for ability in EXTENDED_CAPABILITIES}
    assert base | extended == set(counted)
    assert sum(counted[name] for name in base) >= BASE_TESTS
    assert sum(counted[name] for name in extended) >= EXTENDED_TESTS
