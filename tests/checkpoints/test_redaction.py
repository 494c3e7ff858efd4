"""What an event says of a value: plain, bounded, and without what must not be written down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory.checkpoints.redaction import REDACTED, abridge, abridged, redacted

KEY = "sk-proj-" + "aB3" * 12
PLAIN = "correct horse"  # by its form it is no secret


@pytest.mark.parametrize(
    "value",
    [
        {"api_key": PLAIN},
        {"X-Api-Key": PLAIN},
        {"openaiApiKey": PLAIN},
        {"headers": {"Authorization": f"Token {PLAIN}"}},
        {"headers": [("Authorization", PLAIN)]},
        {"headers": [["x-api-key", PLAIN]]},
        {"headers": [{"name": "Cookie", "value": PLAIN}]},
        {"token": PLAIN},
        {"aws": {"AccessKey": PLAIN}},
        "sk-test-1234567890 sk_test_1234567890",
        {"accessToken": PLAIN},
        {"client_secret": {"nested": PLAIN}},
        {"password": [PLAIN]},
        f"{{'api_key': '{PLAIN}'}}",
        json.dumps({"headers": {"Authorization": PLAIN}}),
        json.dumps(json.dumps({"api_key": PLAIN})),
        f'password = "{PLAIN}"',
        "https://host/path?api_key=correct%20horse&q=1".replace("correct%20horse", "horse-battery"),
        f"Error: Incorrect API key provided: {KEY}",
        f"Authorization: Bearer {KEY}",
        "curl -H 'x-api-key: horse-battery'",
        "https://ada:horse-battery@host/",
        "-----BEGIN RSA PRIVATE KEY-----\nhorse-battery\n-----END RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJob3JzZS1iYXR0ZXJ5In0.horse-battery",
        "AKIAIOSFODNN7EXAMPLE github_pat_horse-battery".replace("horse-battery", "horse_battery_horse_battery"),
        ["AIza" + "Sy" * 18],
    ],
    ids=lambda value: str(value)[:40],
)
def test_secrets_are_known_by_name_and_by_form(value: Any) -> None:
    for said in (str(redacted(value)), str(abridged(value))):
        assert REDACTED in said
        assert not any(each in said for each in (PLAIN, KEY, "horse-battery", "horse_battery", "AKIA", "AIza", "1234"))


@pytest.mark.parametrize(
    "value",
    [
        {"max_tokens": 100, "token_count": 3, "input_tokens": 5, "author": "Ada", "key": "value", "keyboard": "us"},
        "The token is spent; basic understanding-of-everything is a secret to most.",
        "http://localhost:8000/a@b",
        "task-force-of-the-new-administration in sk-learn-like ways, pk_user_id_of_the_table",
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_only_sounds_like_a_secret_stays(value: Any) -> None:
    assert redacted(value) == abridged(value) == value


def test_a_secret_at_the_cut_is_not_half_seen() -> None:
    for before in range(1_940, 2_010):
        said = abridged("x " * (before // 2) + KEY + " y" * 10_000)
        assert "sk-" not in said.replace(REDACTED, "")


class Thing:
    def __repr__(self) -> str:
        return f"Thing({KEY})"


def test_objects_are_named_and_not_shown_unless_they_are_described() -> None:
    assert abridged({"a": Thing(), "b": b"123", "c": {1: 2}}) == {"a": "<Thing>", "b": "<3 bytes>", "c": {"1": 2}}
    described = abridged([Thing(), 10**100], lambda thing: {"api_key": KEY} if isinstance(thing, Thing) else None)
    assert described == [{"api_key": REDACTED}, "<int>"]


def test_an_object_that_is_described_by_itself_ends() -> None:
    assert abridged(Thing(), lambda thing: thing) == "<Thing>"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children) | st.tuples(children, children),
)


@given(VALUES)
def test_whatever_is_said_is_plain_and_saying_it_again_changes_nothing(value: Any) -> None:
    said = abridged(value)
    json.dumps(said)
    assert redacted(said) == said


@given(VALUES)
def test_what_is_said_to_be_whole_is(value: Any) -> None:
    said, whole = abridge(value)
    assert not whole or said == value


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        ({"a": [1, "b", None]}, True),
        ((1,), False),
        ({1: "a"}, False),
        ({"token": "a"}, False),
        (["x" * 3000], False),
        (Thing(), False),
    ],
)
def test_what_was_cut_hidden_or_changed_is_not_whole(value: Any, whole: bool) -> None:
    assert abridge(value)[1] is whole


@pytest.mark.parametrize(
    "value",
    ["a" * 10**7, ["b" * 100] * 10**5, dict.fromkeys(range(10**5), "c"), [[["d" * 3000] * 60] * 60] * 60],
    ids=["text", "list", "dict", "nested"],
)
def test_what_is_said_is_bounded(value: Any) -> None:
    assert len(json.dumps(abridged(value))) < 16_000


def test_a_list_that_holds_itself_ends() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert len(str(abridged(endless))) < 100
