"""The message graph of an episode: its messages, and the tokens that each adds, every token once.

A branch is a path of its own, from the first message it begins with. A message of the policy has
the tokens that were sampled in its turn; what the harness wrote in front of a turn is the last
message's before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from swe_rollout.export.chat import Reading, branches_of, call_ids, opening
from swe_rollout.export.files import encode
from swe_rollout.tokens.branch import Branch
from swe_rollout.tokens.log import SamplingUsed, SegmentKind
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, ToolCall, Turn


@dataclass(slots=True)
class MessageNode:
    """One message, and the tokens it adds."""

    message: Mapping[str, object]
    """In OpenAI's form; arguments of calls are JSON, or as sampled where they did not parse."""
    parent: int | None
    """The node before it; None: it begins a branch."""
    turn: Turn | None = None
    """Of what the policy sampled."""
    token_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    """Whether the policy sampled the token."""
    logprobs: list[float] = field(default_factory=list)
    """Of the sampled tokens alone, in nats."""
    sampling: SamplingUsed | None = None

    def add(self, branch: Branch, start: int, end: int) -> None:
        """Append a run of the branch's tokens."""
        self.token_ids += branch.token_ids[start:end]
        self.mask += map(bool, branch.loss_mask[start:end])
        self.logprobs += [each for each in branch.logprobs[start:end] if each is not None]


def message_graph(trajectory: Trajectory, reading: Reading) -> list[MessageNode]:
    """Return the nodes of all branches in which something was said.

    Raises TaskError where the first messages of a branch are not known.
    """
    nodes: list[MessageNode] = []
    used = frozenset(branches_of(trajectory))
    for branch in trajectory.trained:
        if branch.index in used or branch.sampled:
            _add_branch(nodes, trajectory, branch, reading)
    return nodes


def _add_branch(
    nodes: list[MessageNode], trajectory: Trajectory, branch: Branch, reading: Reading
) -> None:
    """Append a branch as a path of its own, its tokens in their order."""
    parent: int | None = None

    def say(message: Mapping[str, object], turn: Turn | None = None) -> None:
        nonlocal parent
        nodes.append(MessageNode(message, parent, turn))
        parent = len(nodes) - 1

    for first in opening(trajectory, reading, branch=branch.index):
        say(_text_message(first.role, first.text))
    turns = [turn for turn in trajectory.turns if turn.branch == branch.index]
    heard: Sequence[Mapping[str, object]] = ()
    waiting: list[tuple[int, int]] = []
    for segment in branch.segments:
        run = (segment.start, segment.end)
        if segment.kind is not SegmentKind.SAMPLED:
            waiting.append(run)
            continue
        while turns and turns[0].index <= segment.turn:
            turn = turns.pop(0)
            for message in (*heard, *_said(turn)):
                say(message)
            if turn.index == segment.turn:
                # What the harness wrote is the last message's; it ends in the start of this one.
                _add_all(nodes[-1], branch, waiting)
                waiting = []
            say(_assistant(turn, trajectory, reading), turn)
            heard = tuple(_heard(turn))
        _add_all(nodes[-1], branch, [*waiting, run])
        nodes[-1].sampling = segment.sampling
        waiting = []
    for message in heard:
        say(message)
    _add_all(nodes[-1], branch, waiting)


def _add_all(node: MessageNode, branch: Branch, runs: Sequence[tuple[int, int]]) -> None:
    for start, end in runs:
        node.add(branch, start, end)


def _text_message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "content": text, **({"tool_call_id": ""} if role == "tool" else {})}


def _said(turn: Turn) -> Iterator[dict[str, object]]:
    if turn.message:
        yield _text_message("user", turn.message)


def _heard(turn: Turn) -> Iterator[dict[str, object]]:
    # Fewer observations than calls where the episode ended during the turn.
    calls = [(call.name, name) for call, name in zip(turn.tool_calls, call_ids(turn), strict=True)]
    for position, seen in enumerate(turn.observations):
        name, call_id = calls[position] if position < len(calls) else ("", "")
        yield {"role": "tool", "tool_call_id": call_id, "name": name or None, "content": seen.text}


def _assistant(turn: Turn, trajectory: Trajectory, reading: Reading) -> dict[str, object]:
    text = reading.text(turn, trajectory)
    if text.words is None or not turn.tool_calls:
        # A call that did not parse stays in the text, as it was sampled.
        return {"role": "assistant", "content": text.sampled}
    calls = [
        {"id": name, "name": call.name, "arguments": _arguments(call)}
        for call, name in zip(turn.tool_calls, call_ids(turn), strict=True)
    ]
    return {"role": "assistant", "content": text.words, "tool_calls": calls}


def _arguments(call: ToolCall) -> str:
    parsed = call.status is CallStatus.OK
    return encode(call.arguments).decode() if parsed else call.raw
