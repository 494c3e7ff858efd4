"""What a server, a role or the environment sets for a session changes nothing of what is stored and found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from rlm_memory import Memory
from support import SettableClock, WordEmbedder

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

TEXTS: Final = ["green tea", "日本語のテキスト", "ünï ß", "🦊 fox", "back\\slash and 'quote'", "a\0b"]


def by_options(setting: str) -> Callable[[str, pytest.MonkeyPatch], str]:
    def url_with(url: str, environment: pytest.MonkeyPatch) -> str:
        del environment
        return url.replace(quote("-c search_path"), quote(f"-c {setting} -c search_path"))

    return url_with


def by_parameter(url: str, environment: pytest.MonkeyPatch) -> str:
    del environment
    return f"{url}&client_encoding=LATIN1"


def by_environment(url: str, environment: pytest.MonkeyPatch) -> str:
    environment.setenv("PGCLIENTENCODING", "LATIN1")
    return url


@pytest.mark.parametrize(
    "url_with",
    [
        pytest.param(by_parameter, id="client_encoding in the location"),
        pytest.param(by_environment, id="PGCLIENTENCODING"),
        *(
            pytest.param(by_options(setting), id=setting)
            for setting in (
                "client_encoding=LATIN1",
                "client_encoding=SJIS",
                "standard_conforming_strings=off",
                "bytea_output=escape",
                "extra_float_digits=-15",
                "DateStyle=German",
            )
        ),
    ],
)
def test_a_setting_changes_nothing_of_what_is_stored(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url_with: Callable[..., str]
) -> None:
    ids = [f"{number}\\" for number in range(len(TEXTS))]
    with monkeypatch.context() as environment:
        url = url_with(postgres_url, environment)
        with Memory.open(url, embedder=WordEmbedder(16), clock=SettableClock()) as memory:
            memory.add(TEXTS, ids=ids, metadatas=[{"text": text, "n": 0.1 + 0.2} for text in TEXTS], confidence=1 / 3)
            assert memory.check()
    with (
        Memory.open(postgres_url, embedder=WordEmbedder(16), clock=SettableClock()) as usual,
        Memory.open(tmp_path / "same.db", embedder=WordEmbedder(16), clock=SettableClock()) as in_file,
    ):
        in_file.add(TEXTS, ids=ids, metadatas=[{"text": text, "n": 0.1 + 0.2} for text in TEXTS], confidence=1 / 3)
        assert usual.check()
        assert usual.list() == in_file.list()
        for text in TEXTS:
            for filtered in (None, {"text": {"$ilike": text.replace("\\", "\\\\")}}):
                ours, theirs = (memory.search(text, k=3, where=filtered) for memory in (usual, in_file))
                assert [hit.id for hit in ours] == [hit.id for hit in theirs], text
                assert [hit.score for hit in ours] == pytest.approx([hit.score for hit in theirs], abs=1e-5)


def test_an_encoding_of_the_session_does_not_reach_what_is_read(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory.open(postgres_url, embedder=None) as memory:
        memory.add(TEXTS, ids=[str(number) for number in range(len(TEXTS))])
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with Memory.open(postgres_url, embedder=None, read_only=True) as memory:
        assert [node.text for node in memory.get([str(number) for number in range(len(TEXTS))])] == TEXTS
        assert [hit.node.text for hit in memory.search("日本語", k=1)] == [TEXTS[1]]
