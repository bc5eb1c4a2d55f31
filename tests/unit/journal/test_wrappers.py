"""Engine, sandbox and tools over a tape: the same answers again, and nothing asked twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.program import loop, run_agent
from swe_rollout.agent.tools import Offered, toolbox
from swe_rollout.agent.tools.base import ActsOutside, Toolbox, ToolContext
from swe_rollout.agent.tools.function import FunctionTool
from swe_rollout.journal.entries import Entry
from swe_rollout.journal.tape import DivergedError, Tape
from swe_rollout.journal.wrappers import NoTurns, Taped, no_sandbox
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.turn import CallStatus, ToolCall
from unit.agent.test_chat_turns import LS, SUBMIT, Talker, episode, say
from unit.journal.journal_parts import Disk


class Free:
    """Nothing comes before a turn or a call."""

    async def before_turn(self) -> None:
        """Return at once."""

    async def before_call(self) -> None:
        """Return at once."""


def over(context: AgentContext, tape: Tape, sandbox: Sandbox) -> AgentContext:
    """The same agent, over a tape."""
    taped = Taped(tape, Free())
    return AgentContext(
        taped.parts(context.parts),
        instance=context.instance,
        episode=context.episode,
        sampling=context.sampling,
        sandbox=taped.sandbox(sandbox),
    )


async def test_a_conversation_over_a_chat_api_is_given_again() -> None:
    messages = [say("I look.", LS), say("Once more.", LS), SUBMIT]
    first, tape = Talker(messages), Tape()
    expected = over(episode(first), tape, Disk())
    assert await run_agent(loop, expected) is StopReason.SUBMITTED
    entries = tape.take_noted()

    for count in range(len(entries) + 1):
        talker = Talker(
            messages[sum(each.request.startswith("turn:") for each in entries[:count]) :]
        )
        again = over(episode(talker), Tape(entries[:count]), Disk())
        assert await run_agent(loop, again) is StopReason.SUBMITTED
        assert again.chat() == expected.chat()
        turns = sum(each.request.startswith("turn:") for each in entries[count:])
        assert len(talker.requests) == turns


async def test_a_conversation_is_inherited_under_another_address_and_seed() -> None:
    messages = [say("I look.", LS), SUBMIT]
    tape = Tape()
    first = over(episode(Talker(messages)), tape, Disk())
    await run_agent(loop, first)

    talker = Talker([])
    fork = episode(talker)
    fork.episode = EpisodeId("other", "task", 7)
    fork.sampling = fork.sampling.model_copy(update={"seed": 99})
    again = over(fork, Tape(tape.take_noted()), Disk())
    assert await run_agent(loop, again) is StopReason.SUBMITTED
    assert again.chat() == first.chat()
    assert not talker.requests


async def recorded(sandbox: Sandbox) -> tuple[Entry, ...]:
    """What one operation of each kind leaves on a tape."""
    tape = Tape()
    journaled = Taped(tape, Free()).sandbox(sandbox)
    await journaled.exec("add a", env={"TOKEN": "a-secret-of-tests"}, timeout_s=7)
    await journaled.exec(["add", "b"], stdin=b"in")
    await journaled.write_file("/f", b"data")
    assert await journaled.read_file("/f") == b"data"
    with pytest.raises(FileNotFoundError):
        await journaled.read_file("/missing")
    await journaled.end_processes()
    return tape.take_noted()


async def test_every_operation_of_a_sandbox_is_given_again_and_not_carried_out() -> None:
    disk = Disk()
    entries = await recorded(disk)
    assert disk.files == {"log": "ab", "/f": "data"}
    tape = Tape(entries)
    again = Taped(tape, NoTurns(tape)).sandbox(no_sandbox("/testbed"))
    assert again.workdir == "/testbed"
    # The time a command may take is no part of what it is, nor are the values of its variables.
    result = await again.exec("add a", env={"TOKEN": "another"}, timeout_s=3)
    assert result.stdout == b"add a: a"
    assert (await again.exec(["add", "b"], stdin=b"in")).stdout == b"add b: ab"
    await again.write_file("/f", b"data")
    assert await again.read_file("/f") == b"data"
    with pytest.raises(FileNotFoundError, match="/missing"):
        await again.read_file("/missing")
    await again.end_processes()
    tape.require_end()
    with pytest.raises(DivergedError):
        await again.exec("add c")
    with pytest.raises(DivergedError):
        tape.require_end()


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("add x", {}),
        ("add a", {"cwd": "/elsewhere"}),
        ("add a", {"stdin": b"x"}),
        ("add a", {"env": {"OTHER": "a"}}),
        ("add a", {"max_output": 5}),
        (["add", "a"], {}),
    ],
)
async def test_another_operation_has_diverged(
    command: str | list[str], changes: dict[str, object]
) -> None:
    tape = Tape(await recorded(Disk()))
    again = Taped(tape, NoTurns(tape)).sandbox(no_sandbox("/testbed"))
    given = {"env": {"TOKEN": "a"}, **changes}
    with pytest.raises(DivergedError):
        await again.exec(command, **given)  # type: ignore[arg-type]


async def test_no_secret_of_a_variable_is_on_a_tape() -> None:
    assert "a-secret-of-tests" not in repr(await recorded(Disk()))


def look_up(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    return word


async def look_inside(word: str, sandbox: Sandbox) -> str:
    """Look into the sandbox.

    Args:
        word: The word.
    """
    return (await sandbox.exec(word)).stdout.decode()


def test_a_tool_acts_outside_where_it_is_given_nothing_of_the_episode() -> None:
    outside, inside = FunctionTool(look_up), FunctionTool(look_inside)
    assert isinstance(outside, ActsOutside)
    assert outside.acts_outside
    assert not inside.acts_outside
    assert Offered(outside, name="other").acts_outside
    bash, *_ = toolbox(["bash"]).tools
    assert not Offered(bash, name="other").acts_outside


async def test_tools_keep_their_names_and_order_over_a_tape() -> None:
    tools = Toolbox([*toolbox(["bash", "submit"]).tools, FunctionTool(look_up)])
    tape = Tape()
    parts = replace(episode(Talker([])).parts, toolbox=tools)
    journaled = Taped(tape, Free()).parts(parts).toolbox
    assert journaled.specs == tools.specs
    some = journaled.only(["look_up", "bash"])
    assert [spec.name for spec in some.specs] == ["look_up", "bash"]
    call = ToolCall(CallStatus.OK, "", "look_up", {"word": "w"})
    bounds = ToolContext(timeout_s=5, output_bytes=1000)
    found = await some.run(call, Disk(), bounds)
    assert found.text == "w"
    entries = tape.take_noted()
    assert [entry.request.partition(":")[0] for entry in entries] == ["tool"]
    again = Tape(entries)
    other = Taped(again, NoTurns(again)).parts(parts).toolbox
    assert replace(await other.run(call, Disk(), bounds), duration_s=0) == replace(
        found, duration_s=0
    )
