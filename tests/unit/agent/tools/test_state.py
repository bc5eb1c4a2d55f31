"""What tools remember of an episode, given back at its end, and of a sandbox, gone with it."""

from __future__ import annotations

import gc

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
