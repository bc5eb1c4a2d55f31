"""Recorded calls are carried out again and compared, but for noise (J6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools import toolbox
from swe_rollout.text import redaction
from swe_rollout.types.episode import Failure
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Observation, ToolCall
from swe_rollout.worker.replay import Replay, Replayer, unified
from unit.export.export_parts import LOST
from unit.worker.work_parts import PATCH, TASK, OneSandbox, TableSandbox, episode, job

EPISODE = episode(("ls", "x.py"), ("date", "Sun Nov 22 07:23:10 UTC 2026"))
OUTPUTS = {"ls": "x.py\n", "date": "Mon Nov 23 09:00:00 UTC 2026\n"}


async def replay(
    trajectory: Trajectory, sandbox: TableSandbox, *, refuses: bool = False
) -> tuple[Replay, OneSandbox]:
    provider = OneSandbox(sandbox, refuses)
    replayer = Replayer(provider, toolbox(["bash", "submit"]), job().spec.limits)
    return await replayer.replay(trajectory, TASK), provider


async def test_a_replay_that_differs_by_noise_is_the_same() -> None:
    sandbox = TableSandbox(OUTPUTS)
    found, provider = await replay(EPISODE, sandbox)
    assert found.same
    assert found.calls == 2
    assert sandbox.commands == ["ls", "date"]
    assert sandbox.closed == 1
    assert provider.requests[0].episode.job.startswith("replay-")
    assert provider.requests[0].image == TASK.image


async def test_the_first_difference_is_shown_and_ends_the_replay() -> None:
    sandbox = TableSandbox({"ls": "y.py\n"})
    found, _ = await replay(EPISODE, sandbox)
    assert found.difference is not None
    assert (found.difference.turn, found.difference.call) == (0, 0)
    assert "-x.py\n+y.py" in found.difference.diff
    assert str(found.difference) == "turn 0, call 0: the observation differs"
    assert sandbox.commands == ["ls"]
    assert sandbox.closed == 1


async def test_another_exit_code_is_a_difference_even_where_the_text_hides_it() -> None:
    first = EPISODE.turns[0]
    told = Observation("exit code: 3\nstdout:\nx.py", exit_code=0, duration_s=0.1)
    hidden = replace(EPISODE, turns=(replace(first, observations=(told,)),))
    found, _ = await replay(hidden, TableSandbox(OUTPUTS, exit_code=3))
    assert found.difference is not None
    assert found.difference.what == "exit code"
    assert "-0\n+3" in found.difference.diff


async def test_another_patch_is_a_difference() -> None:
    found, _ = await replay(EPISODE, TableSandbox(OUTPUTS, patch=PATCH + "+more\n"))
    assert found.difference is not None
    assert found.difference.call is None
    assert str(found.difference) == "the patch differs"


async def test_the_patch_of_an_episode_that_broke_is_not_compared() -> None:
    broken = replace(EPISODE, failure=LOST, patch="")
    assert isinstance(broken.failure, Failure)
    found, _ = await replay(broken, TableSandbox(OUTPUTS))
    assert found.same


BAD = ToolCall(CallStatus.INVALID_JSON, "{", problem="the call was not run: bad")
LATE = ToolCall(CallStatus.OK, "raw", "bash", {"command": "late"})


@pytest.mark.parametrize(
    ("calls", "seen"),
    [
        ((BAD, LATE), "the call was not run: bad"),
        (EPISODE.turns[0].tool_calls, "not in this phase"),
    ],
    ids=["the first could not be run", "the agent program answered"],
)
async def test_calls_that_were_not_run_are_not_run_now(
    calls: tuple[ToolCall, ...], seen: str
) -> None:
    turn = replace(EPISODE.turns[0], tool_calls=calls, observations=(Observation(seen),))
    sandbox = TableSandbox()
    found, _ = await replay(replace(EPISODE, turns=(turn,)), sandbox)
    assert found.same
    assert sandbox.commands == []


async def test_what_a_further_agent_answered_is_not_asked_again() -> None:
    asked = ToolCall(CallStatus.OK, "raw", "agent", {"prompt": "Look."})
    seen = Observation("Found it.", duration_s=2.0)
    turn = replace(EPISODE.turns[0], tool_calls=(asked,), observations=(seen,))
    replayer = Replayer(OneSandbox(TableSandbox()), toolbox(["agent", "submit"]), job().spec.limits)
    assert (await replayer.replay(replace(EPISODE, turns=(turn,)), TASK)).same


async def test_a_lost_sandbox_is_no_difference() -> None:
    sandbox = TableSandbox()
    found, _ = await replay(episode(("lose", "")), sandbox)
    assert found.difference is None
    assert not found.same
    assert found.failure == "the sandbox is lost"
    assert sandbox.closed == 1
    found, _ = await replay(EPISODE, sandbox, refuses=True)
    assert found.failure == "no room"


async def test_what_a_record_has_redacted_is_compared_redacted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("swe_rollout.worker.replay.redact", lambda text: text.replace("key", "•"))
    found, _ = await replay(episode(("env", "A=•")), TableSandbox({"env": "A=key\n"}))
    assert found.same
    assert redaction.redact("A=key") == "A=key"


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_diff_of_different_texts_shows_something(one: str, other: str) -> None:
    if one != other:
        assert unified(one, other).strip()


def test_a_diff_of_huge_texts_is_short_and_shows_where_they_part() -> None:
    one = "\n".join(f"line {n % 7}" for n in range(50_000))
    found = unified(one + "\nold" + "x" * 10**6, one + "\nnew")
    assert len(found) < 5000
    assert "-oldx" in found
    assert "+new" in found
    found = unified("a" * 10**6 + "b", "a" * 10**6 + "c")
    assert "ab" in found
    assert "ac" in found
    assert len(found) < 5000


async def test_a_command_that_was_killed_has_no_more_time_than_it_had() -> None:
    turn = EPISODE.turns[0]
    killed = replace(turn.observations[0], timed_out=True, duration_s=3.5)
    sandbox = TableSandbox(OUTPUTS)
    await replay(replace(EPISODE, turns=(replace(turn, observations=(killed,)),)), sandbox)
    await replay(EPISODE, sandbox)
    assert sandbox.timeouts == [3.5, 120.0, 120.0]
