"""What sweeps by several sets of rules leave each other to weigh."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_memory.engines import weighing
from rlm_memory.engines.weighing import weighed_of

RULES = "abcdef"
PART = 3

steps = st.one_of(
    st.tuples(st.sampled_from(["list", "weigh", "end"]), st.sampled_from("abc")),
    st.tuples(st.sampled_from(["change", "add"]), st.integers(1, 9)),
    st.tuples(st.just("weigh all anew"), st.none()),
)


class Store:
    """What an engine keeps, and beside it what of each node the rules have really not seen yet."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.listed: set[int] = set()
        self.nodes = set(range(1, 10))
        self.unseen = {rules: set(self.nodes) for rules in RULES}
        self.listings: dict[str, tuple[list[int], int | None]] = {}

    def left(self, rules: str) -> list[int]:
        weighed = weighed_of(self.text, rules)
        return sorted(self.listed | {node for node in self.nodes if node > weighed.up_to} | weighed.missed)

    def list(self, rules: str) -> None:
        if weighed_of(self.text, rules).era is None:
            self.text = weighed_of(self.text, rules).begun().text
        self.listings[rules] = self.left(rules), weighed_of(self.text, rules).era

    def weigh(self, rules: str) -> bool:
        """Weigh a part of what was listed; return whether there was one."""
        numbers, era = self.listings.get(rules, ([], None))
        if not (part := list(islice(numbers, PART))):
            return False
        self.listings[rules] = numbers[PART:], era
        self.unseen[rules].difference_update(part)
        weighed = weighed_of(self.text, rules)
        if weighed.era is not None:
            weighed = weighed.and_nodes(part, self.listed.intersection(part))
            self.listed.difference_update(part)
            self.text = (weighed.and_up_to(part[-1]) if weighed.era == era else weighed).text
        return True

    def end(self, rules: str) -> None:
        while self.weigh(rules):
            pass
        weighed = weighed_of(self.text, rules)
        if weighed.era is not None and (rules in self.listings and weighed.era == self.listings[rules][1]):
            self.text = weighed.and_up_to().text

    def sweep(self, rules: str) -> list[int]:
        self.list(rules)
        (numbers, _) = self.listings[rules]
        self.end(rules)
        return numbers

    def change(self, node: int) -> None:
        if node in self.nodes:
            self.listed.add(node)
            for unseen in self.unseen.values():
                unseen.add(node)


@settings(max_examples=300)
@given(taken=st.lists(steps, max_size=60), most_missed=st.integers(0, 8))
def test_no_rules_are_kept_from_what_they_have_not_weighed(
    taken: list[tuple[str, str | int | None]], most_missed: int
) -> None:
    store = Store()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(weighing, "_MOST_MISSED", most_missed)
        patched.setattr(weighing, "_MOST_RULES", 2)
        for step, what in taken:
            match step, what:
                case "list", str(rules):
                    store.list(rules)
                case "weigh", str(rules):
                    store.weigh(rules)
                case "end", str(rules):
                    store.end(rules)
                case "change", int(node):
                    store.change(node)
                case "add", int(_):
                    node = max(store.nodes) + 1
                    store.nodes.add(node)
                    store.change(node)  # it is used, else no rules ask for it
                case _:
                    store.text = None
            for rules in RULES:
                waiting = set(store.listings.get(rules, ([], None))[0])
                assert store.unseen[rules] <= {*store.left(rules), *waiting}, rules


def test_rules_that_take_turns_weigh_what_has_changed_alone() -> None:
    store = Store()
    assert store.sweep("a") == store.sweep("b") == sorted(store.nodes)
    store.change(3)
    store.change(5)
    assert store.sweep("a") == [3, 5]
    store.change(5)
    store.change(7)
    assert store.sweep("a") == [5, 7]
    assert store.sweep("b") == [3, 5, 7]
    assert store.sweep("a") == store.sweep("b") == []


def test_rules_that_stop_in_the_middle_find_the_rest_of_what_they_have_missed() -> None:
    store = Store()
    store.sweep("a")
    store.list("b")
    store.weigh("b")
    store.change(3)  # the last one that they have weighed
    store.change(4)
    assert store.sweep("a") == [3, 4]
    assert store.sweep("b") == [3, 4, 5, 6, 7, 8, 9]
    for node in range(2, 8):
        store.change(node)
    store.sweep("a")
    store.list("b")
    store.weigh("b")
    assert store.sweep("b") == [5, 6, 7]


def test_rules_that_have_missed_too_much_and_those_that_are_not_used_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weighing, "_MOST_MISSED", 2)
    store = Store()
    for rules in "ab":
        store.sweep(rules)
    for node in (1, 2, 3):
        store.change(node)
        store.sweep("a")
    assert store.sweep("b") == sorted(store.nodes)
    assert store.sweep("a") == []
    for rules in RULES:
        store.sweep(rules)
    assert store.sweep("f") == store.sweep("c") == []
    assert store.sweep("a") == sorted(store.nodes)


def test_what_is_kept_for_the_others_stays_short() -> None:
    store = Store()
    first = 300 << 40
    store.nodes = set(range(first, first + 300_000, 600))
    for rules in RULES:
        store.sweep(rules)
    for node in store.nodes:
        store.change(node)
    store.sweep("f")
    assert store.text is not None
    assert len(store.left("e")) == len(store.nodes) == 500
    assert len(store.text) < 7_000


def test_a_text_of_an_earlier_form_tells_nothing() -> None:
    assert weighed_of('["a", 5, 20]', "a") == weighed_of(None, "a")
