"""Whatever a memory lives through, it stays what it is, nothing is lost, and the log tells how it got where it is."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlm_memory import Memory, Node
from rlm_memory.records import TIERS, LogEntry, Tier
from support import SettableClock, WordEmbedder

TEXTS = {
    "ada": "Ada likes green tea",
    "ada again": "Ada likes green tea",  # says the same, for `consolidate`
    "bo": "Bo lives in Rome",
    "cy": "Cy plays the cello 设备",
    "di\0": "Di's dog; DROP TABLE nodes --",
    "eve": "Eve",
}
ids = st.sampled_from(list(TEXTS))
some_ids = st.lists(ids, min_size=2, max_size=6, unique=True)
first_tiers = st.sampled_from([*TIERS, "longterm", "longterm"])  # of the moves by rules, archiving takes the longest
sessions = st.sampled_from(["s1", "s2", "s3", "s4"])
days = st.sampled_from([0.01, 1.5, 30, 91, 200])


def told(node: Node) -> tuple[Any, ...]:
    """What no decision about a tier may change."""
    return node.id, node.text, dict(node.metadata), node.type, node.provenance, node.created_at


class Lives(RuleBasedStateMachine):
    """The nodes of one file, used, judged, moved by rules and by hand, while a clock goes on as the test says."""

    @initialize(
        tiers=st.lists(first_tiers, min_size=len(TEXTS), max_size=len(TEXTS)),
        pinned=st.sets(ids, max_size=3),
    )
    def create(self, tiers: list[Tier], pinned: set[str]) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = SettableClock()
        self.embedder = WordEmbedder(16)
        self.opened = [self.open()]
        self.pinned: set[str] = set()
        self.runs = 0
        self.memory.add(
            [
                Node(text=text, id=id, metadata={"n": n, "tags": [id]}, confidence=0.9, tier=tier, provenance="a test")
                for n, ((id, text), tier) in enumerate(zip(TEXTS.items(), tiers, strict=True))
            ]
        )
        for id in sorted(pinned):
            self.pin(id)
        self.before = {node.id: told(node) for node in self.everything()}

    def open(self) -> Memory:
        return Memory.open(self.folder / "memory.db", embedder=self.embedder, clock=self.clock)

    @property
    def memory(self) -> Memory:
        return self.opened[-1]

    def everything(self) -> list[Node]:
        return self.memory.list(limit=100, include_archived=True)

    def tier(self, id: str) -> Tier:
        return self.memory.get(id)[0].tier

    # -- what happens to them -----------------------------------------------------------------------------------

    @rule(session=sessions, used=some_ids, times=st.integers(1, 3))
    def use(self, session: str, used: list[str], times: int) -> None:
        for _ in range(times):
            self.memory.session(session).record_access(used)

    @rule(session=sessions, question=st.sampled_from(list(TEXTS.values())), include_archived=st.booleans())
    def search(self, session: str, question: str, include_archived: bool) -> None:
        self.memory.search(question, k=2, session=session, include_archived=include_archived)

    @rule(session=sessions, success=st.booleans(), judged=st.none() | some_ids)
    def judge(self, session: str, success: bool, judged: list[str] | None) -> None:
        self.memory.session(session).outcome(success, judged)

    @rule(session=sessions)
    def end(self, session: str) -> None:
        self.memory.session(session).end()

    @rule(used=some_ids, success=st.sampled_from([True, True, False]), apart=st.sampled_from([0.01, 2]))
    def three_runs(self, used: list[str], success: bool, apart: float) -> None:
        """Enough for longterm, if nothing speaks against it."""
        self.runs += 1
        for session in ("s1", "s2", f"run {self.runs}"):
            self.clock.advance(days=apart)
            with self.memory.session(session) as run:
                run.record_access(used)
                run.record_access(used)
                run.outcome(success)

    @rule(passed=days | st.just(91))
    def sweep_after(self, passed: float) -> None:
        self.clock.advance(days=passed)
        foreseen = self.memory.sweep(dry_run=True)
        made = self.memory.sweep()
        assert {decision.node_id for decision in foreseen} <= {decision.node_id for decision in made}

    @rule(id=ids, to=st.sampled_from(TIERS))
    def promote(self, id: str, to: Tier) -> None:
        self.memory.promote(id, to, reason="a test wants it")
        assert self.tier(id) == to

    @rule(id=ids)
    def restore(self, id: str) -> None:
        if self.tier(id) == "archive":
            self.memory.restore(id)
            assert self.tier(id) == "longterm"

    @rule(id=ids)
    def pin(self, id: str) -> None:
        self.memory.pin(id)
        self.pinned.add(id)

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.pinned)))
        self.memory.unpin(id)
        self.pinned.remove(id)

    @rule()
    def consolidate(self) -> None:
        for tier in TIERS:
            for others in self.memory.consolidate(tier=tier).values():
                assert not self.pinned & set(others)

    @rule()
    def fade_and_learn(self) -> None:
        self.memory.decay()
        self.memory.learn()

    @rule()
    def compact(self) -> None:
        self.memory.compact()

    @rule(closed=st.booleans())
    def reopen(self, closed: bool) -> None:
        if closed:
            self.memory.close()
        self.opened.append(self.open())

    # -- what is true of them all the time ----------------------------------------------------------------------

    @invariant()
    def they_stay_what_they_are(self) -> None:
        assert {node.id: told(node) for node in self.everything()} == self.before

    @invariant()
    def what_is_archived_is_found_when_asked_for_and_only_then(self) -> None:
        nodes = self.everything()
        usual = {hit.id for hit in self.memory.search("a question", k=len(nodes))}
        assert usual == {node.id for node in nodes if node.tier != "archive"}
        for node in nodes:
            if node.tier == "archive":
                hits = self.memory.search(node.text, k=len(nodes), include_archived=True)
                [semantic] = [hit.semantic for hit in hits if hit.id == node.id]
                assert semantic is not None
                assert semantic > 0.99, "it has its vector"

    @invariant()
    def the_log_leads_from_its_first_entry_to_the_tiers_of_today(self) -> None:
        entries = list(self.memory.promotion_log())
        tiers: dict[str, Tier] = dict.fromkeys(TEXTS, "task")
        pinned: set[str] = set()
        for entry in entries:
            move = entry.decision
            assert move.from_tier == tiers[move.node_id]
            if move.actor == "auto":
                self.expect_a_step_up(entry, pinned)
            if move.moved:
                tiers[move.node_id] = move.to_tier
            if move.rule == "pin":
                pinned.add(move.node_id)
            if move.rule == "unpin":
                pinned.discard(move.node_id)
        nodes = self.everything()
        assert {node.id: node.tier for node in nodes} == tiers
        assert {node.id for node in nodes if node.pinned} == pinned == self.pinned

    def expect_a_step_up(self, entry: LogEntry, pinned: set[str]) -> None:
        move = entry.decision
        assert TIERS.index(move.to_tier) == TIERS.index(move.from_tier) + 1, "no rule demotes, nor skips a tier"
        assert move.moved == all(condition.holds for condition in move.conditions)
        assert move.conditions
        if move.moved and move.to_tier == "archive":
            assert move.node_id not in pinned

    def teardown(self) -> None:
        report = self.memory.check()
        assert report, list(report)
        for memory in self.opened:
            memory.close()
        shutil.rmtree(self.folder)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=30, stateful_step_count=20)
