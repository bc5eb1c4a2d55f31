"""What tools remember of an episode and of a sandbox, and marks that a policy can't guess."""

from __future__ import annotations

import gc

from swe_rollout.agent.tools.marks import ACTING, MARKS, Marks, new_mark
from swe_rollout.agent.tools.state import PerSandbox, ToolState
from swe_rollout.testing.extensions.tools import MemorySandbox

CLOSED: list[str] = []


class Plain:
    pass


class First:
    async def aclose(self) -> None:
        CLOSED.append("first")


class Second:
    async def aclose(self) -> None:
        CLOSED.append("second")
        raise OSError("gone")


def test_a_state_is_made_once_for_each_class_and_key_of_an_episode() -> None:
    one, other = ToolState(), ToolState()

    assert one.of(Plain) is one.of(Plain)
    assert one.of(Plain) is not one.of(Plain, "bash")
    assert one.of(Plain) is not other.of(Plain)


async def test_states_are_closed_youngest_first_and_one_that_fails_keeps_none_open() -> None:
    CLOSED.clear()
    state = ToolState()
    state.of(Plain)
    state.of(First)
    kept = state.of(Second)

    await state.aclose()
    assert CLOSED == ["second", "first"]
    await state.aclose()
    assert CLOSED == ["second", "first"]
    assert state.of(Second) is not kept


def test_each_sandbox_has_one_state_for_as_long_as_it_lives() -> None:
    states = PerSandbox(list[int])
    one, other = MemorySandbox({}), MemorySandbox({})
    assert one == other, "the test needs sandboxes that compare equal"

    states.of(one).append(1)

    assert states.of(one) == [1]
    assert states.of(other) == []
    del one
    gc.collect()
    assert len(states) == 1


def test_a_thousand_sandboxes_leave_nothing_behind() -> None:
    states = PerSandbox(list[int])
    for number in range(1000):
        states.of(MemorySandbox({})).append(number)
    gc.collect()

    assert len(states) == 0


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
