"""What a tool remembers of a sandbox goes with it."""

from __future__ import annotations

import gc

from swe_rollout.agent.tools.state import PerSandbox
from swe_rollout.testing.extensions.tools import MemorySandbox


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
