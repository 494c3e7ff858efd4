"""Whether single accesses are forgotten makes no difference to any decision, whatever happens in which order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_memory import Memory, PromotionPolicy
from support import SettableClock
from use_history import IDS, KINDS, SESSIONS, Step, begin, decided, play

steps = st.builds(
    Step,
    kind=st.sampled_from(KINDS),
    hours=st.sampled_from([0, 1, 30, 24 * 20, 24 * 100]),
    session=st.sampled_from(SESSIONS),
    ids=st.lists(st.sampled_from(IDS), min_size=1, unique=True).map(tuple),
    run=st.booleans(),
    success=st.sampled_from([True, True, False]),
    confidence=st.sampled_from([0.5, 0.8, 0.95]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=40))
def test_histories_with_and_without_forgetting_lead_to_the_same_decisions(history: list[Step]) -> None:
    ends = []
    for days in (None, 0, 7):
        clock = SettableClock()
        policy = PromotionPolicy(keep_accesses_days=days, min_confidence=0.7)
        with Memory.open(":memory:", embedder=None, clock=clock, policy=policy, sweep=False) as memory:
            begin(memory)
            play(memory, clock, history)
            ends.append(decided(memory))
            clock.advance(days=400)
            memory.sweep()
            assert memory.check()
            for node in memory.list():
                forgotten = sum(each.accesses for each in memory.forgotten_accesses(node.id))
                assert len(memory.accesses(node.id)) + forgotten == node.access_count
            ends[-1].append(decided(memory))
    assert ends[1] == ends[0]
    assert ends[2] == ends[0]
