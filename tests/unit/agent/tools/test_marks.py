"""Marks: random without a journal, the same again with one, and never another agent's."""

from __future__ import annotations

from swe_rollout.agent.tools.marks import ACTING, MARKS, Marks, new_mark


def test_without_a_journal_every_mark_is_another() -> None:
    marks = {new_mark(16) for _ in range(100)}
    assert len(marks) == 100
    assert {len(mark) for mark in marks} == {32}


def test_marks_follow_from_their_seed_the_agent_and_their_number() -> None:
    def drawn(seed: str, *agents: int) -> list[str]:
        token = MARKS.set(Marks(seed))
        try:
            return [_of(agent) for agent in agents]
        finally:
            MARKS.reset(token)

    first = drawn("00" * 16, 0, 0, 1)
    assert len(set(first)) == 3
    # Agents that draw at the same time do not change each other's.
    assert drawn("00" * 16, 1, 0, 0) == [first[2], first[0], first[1]]
    assert not set(drawn("01" * 16, 0, 0, 1)) & set(first)


def _of(agent: int) -> str:
    token = ACTING.set(agent)
    try:
        return new_mark(8)
    finally:
        ACTING.reset(token)
