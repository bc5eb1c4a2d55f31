"""Export chats for supervised fine-tuning: JSON Lines of messages with roles and tool calls.

The messages before the first turn are in the record; for older records they come from the job and
its dataset, through `TaskPrompt`. Reasoning stays in a message as it was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from swe_rollout.errors import TaskError
from swe_rollout.export.files import FileFormat, line
from swe_rollout.types.trajectory import ChatLine, Trajectory
from swe_rollout.types.turn import CallStatus, ToolCall, Turn


@dataclass(frozen=True, slots=True)
class TaskPrompt:
    """What the policy was shown before its first turn."""

    system: str
    """The system message; empty if there is none."""
    user: str
    tools: tuple[Mapping[str, object], ...] = ()
    """The tools in OpenAI's function form; empty if they are not known."""


class TurnText(Protocol):
    """The text of a turn."""

    @property
    def sampled(self) -> str:
        """The whole text, without the token that ended it."""
        ...

    @property
    def words(self) -> str | None:
        """The text without its calls; None if the calls can't be told apart from it."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """How an export reads records, as it knows neither datasets nor the grammars of models."""

    prompt: Callable[[Trajectory], TaskPrompt]
    """Returns the prompt of a record. Raises TaskError if its task can't be found."""
    text: Callable[[Turn, Trajectory], TurnText]


def messages_format(reading: Reading) -> FileFormat:
    """Return the format: one chat per line, with its result, by which readers can filter.

    An episode with several branches has a chat for each of them.
    """

    def part(trajectory: Trajectory) -> bytes:
        return b"".join(line(row(trajectory, branch)) for branch in branches_of(trajectory))

    def row(trajectory: Trajectory, branch: int) -> dict[str, object]:
        prompt, reward = reading.prompt(trajectory), trajectory.reward
        return {
            "messages": list(messages(trajectory, reading, branch=branch)),
            **({"tools": prompt.tools} if prompt.tools else {}),
            "episode": str(trajectory.episode),
            **({"branch": branch} if trajectory.branches else {}),
            "instance_id": trajectory.episode.instance,
            "policy": trajectory.policy,
            "reward": None if reward is None else reward.value,
            "resolved": trajectory.resolved,
            "masked": trajectory.masked,
            "stop_reason": trajectory.stop_reason,
        }

    return FileFormat(part)


def branches_of(trajectory: Trajectory) -> Sequence[int]:
    """Return the main branch and all others that contain turns."""
    return sorted({0, *(turn.branch for turn in trajectory.turns)})


def opening(trajectory: Trajectory, reading: Reading, *, branch: int = 0) -> list[ChatLine]:
    """Return the messages at the beginning of a branch.

    Raises TaskError if neither the record nor the dataset has them.
    """
    if found := [each for each in trajectory.prompts if each.branch == branch]:
        return found
    if branch:
        raise TaskError(f"branch {branch} has no prompt as text", retryable=False)
    prompt = reading.prompt(trajectory)
    asked = ChatLine("user", prompt.user)
    return [ChatLine("system", prompt.system), asked] if prompt.system else [asked]


def messages(
    trajectory: Trajectory, reading: Reading, *, branch: int = 0
) -> Iterator[dict[str, object]]:
    """Yield a chat: system and user, then assistant, tool and further user messages by turn."""
    for first in opening(trajectory, reading, branch=branch):
        yield {"role": first.role, "content": first.text}
    for turn in trajectory.turns:
        if turn.branch == branch:
            if turn.message:
                yield {"role": "user", "content": turn.message}
            yield from _turn(turn, reading.text(turn, trajectory))


def _turn(turn: Turn, text: TurnText) -> Iterator[dict[str, object]]:
    if text.words is None or not turn.tool_calls:
        # A call that did not parse has no arguments; it stays in the text as it was sampled.
        yield {"role": "assistant", "content": text.sampled}
        for seen in turn.observations:
            yield {"role": "tool", "content": seen.text}
        return
    ids = call_ids(turn)
    calls = [_call(call, name) for call, name in zip(turn.tool_calls, ids, strict=True)]
    yield {"role": "assistant", "content": text.words, "tool_calls": calls}
    # There are fewer observations than calls if the episode ended during the turn.
    for call, name, seen in zip(turn.tool_calls, ids, turn.observations, strict=False):
        yield {"role": "tool", "name": call.name, "tool_call_id": name, "content": seen.text}


def call_ids(turn: Turn) -> tuple[str, ...]:
    """Return an id for each call: the policy's own, if it gave one and it is unique."""
    given = [call.id for call in turn.tool_calls]
    return tuple(
        own if own and given.count(own) == 1 else f"call_{turn.index}_{position}"
        for position, own in enumerate(given)
    )


def _call(call: ToolCall, name: str) -> dict[str, object]:
    arguments = call.arguments if call.status is CallStatus.OK else {}
    function = {"name": call.name, "arguments": arguments}
    return {"id": name, "type": "function", "function": function}
