"""Export to verifiers' `Trace`, the record of its environments: one JSON document per line.

verifiers' `Branch` reads each path of the message graph back as one training sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from swe_rollout.errors import TaskError
from swe_rollout.export.chat import Reading, branches_of, call_ids, opening
from swe_rollout.export.files import FileFormat, encode, line
from swe_rollout.tokens.branch import Branch
from swe_rollout.tokens.log import SamplingUsed, SegmentKind
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, FinishReason, ToolCall, Turn

TRACE_VERSION = 1
_STOPS = {
    StopReason.SUBMITTED: "agent_completed",
    StopReason.FINISHED: "agent_completed",
    StopReason.TURN_LIMIT: "max_turns",
    StopReason.TOKEN_LIMIT: "max_output_tokens",
    StopReason.CONTEXT_FULL: "max_total_tokens",
    StopReason.TIME_LIMIT: "agent_timeout",
}
"""The names of the stop reasons that verifiers' `is_truncated` knows; others keep our names."""


_SAMPLING = ("temperature", "top_p", "top_k", "min_p")


def verifiers_format(reading: Reading) -> FileFormat:
    """Return the format. Episodes over a chat API are left out: they have no tokens to train on."""
    return FileFormat(lambda trajectory: line(trace(trajectory, reading)))


def trace(trajectory: Trajectory, reading: Reading) -> dict[str, object]:
    """Return an episode as a trace's JSON object; `rewards` is null if it was not graded.

    Raises TaskError for an episode without tokens, or whose first messages are not known.
    """
    if trajectory.chat is not None:
        raise TaskError(f"{trajectory.policy} returns no tokens", retryable=False)
    nodes = message_graph(trajectory, reading)
    described = (each.get("function") for each in reading.prompt(trajectory).tools)
    tools = [each for each in described if each is not None]
    reward, episode = trajectory.reward, trajectory.episode
    terms = () if reward is None else reward.terms
    return {
        "version": TRACE_VERSION,
        "id": str(episode),
        "verifiers": {"version": f"swe-rollout {trajectory.software.get('swe-rollout', '')}"},
        "task": {
            "type": "SweRolloutTask",
            "key": episode.instance,
            "hash": trajectory.instance_digest or None,
            "data": {"id": episode.instance, "sample": episode.sample},
        },
        "agent": {"config": {"model": trajectory.policy}},
        "tools": tools,
        "nodes": [_node(each, tools) for each in nodes],
        "calls": [
            _call(index, each.turn, each)
            for index, each in enumerate(nodes)
            if each.turn is not None
        ],
        "rewards": {each.name: {"score": each.score, "weight": each.weight} for each in terms}
        or {"reward": None},
        "metrics": {"resolved": None if reward is None else float(trajectory.resolved)},
        "info": {"patch": trajectory.patch},
        **_ending(trajectory),
    }


def _node(node: MessageNode, tools: list[object]) -> dict[str, object]:
    return {
        "parent": node.parent,
        **({"tools": tools} if node.parent is None else {}),
        "message": node.message,
        "sampled": node.turn is not None,
        "token_ids": node.token_ids,
        "mask": node.mask,
        "logprobs": node.logprobs,
    }


def _call(index: int, turn: Turn, node: MessageNode) -> dict[str, object]:
    finish = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}.get(turn.finish_reason)
    used = node.sampling
    return {
        "node": index,
        "finish_reason": "tool_calls" if turn.tool_calls and finish == "stop" else finish,
        "sampling": used and {name: getattr(used, name) for name in _SAMPLING},
        "usage": {
            "prompt_tokens": max(0, turn.request.length - turn.cached_tokens),
            "completion_tokens": turn.completion_tokens,
            "cached_input_tokens": turn.cached_tokens,
        },
        "time": {"start": 0.0, "end": turn.engine_s},
    }


def _ending(trajectory: Trajectory) -> dict[str, object]:
    stop, failure = trajectory.stop_reason, trajectory.failure
    if failure is not None:
        return {
            "is_completed": True,
            "ok": False,
            "stop_condition": f"{failure.boundary}_error",
            "errors": [{"type": failure.type, "message": failure.message}],
        }
    return {
        "is_completed": True,
        "ok": trajectory.reward is not None,
        "stop_condition": stop and _STOPS.get(stop, stop.value),
        "is_timeout": stop is StopReason.TIME_LIMIT,
    }


@dataclass(slots=True)
class MessageNode:
    """A message and the tokens it adds."""

    message: Mapping[str, object]
    """The message in OpenAI's form; arguments that did not parse stay as they were sampled."""
    parent: int | None
    """The index of the preceding node; None for the first node of a branch."""
    turn: Turn | None = None
    """The turn in which the policy sampled the message, if it did."""
    token_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    """Whether the policy sampled each token."""
    logprobs: list[float] = field(default_factory=list)
    """The log probabilities of the sampled tokens, in nats."""
    sampling: SamplingUsed | None = None

    def add(self, branch: Branch, start: int, end: int) -> None:
        """Append the branch's tokens from `start` to `end`."""
        self.token_ids += branch.token_ids[start:end]
        self.mask += map(bool, branch.loss_mask[start:end])
        self.logprobs += [each for each in branch.logprobs[start:end] if each is not None]


def message_graph(trajectory: Trajectory, reading: Reading) -> list[MessageNode]:
    """Return the nodes of all branches that contain messages.

    Raises TaskError if the first messages of a branch are not known.
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
    """Append a branch as a path of its own, with its tokens in order."""
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
                # The harness's tokens belong to the last message, up to the start of this one.
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
    # There are fewer observations than calls if the episode ended during the turn.
    calls = [(call.name, name) for call, name in zip(turn.tool_calls, call_ids(turn), strict=True)]
    for position, seen in enumerate(turn.observations):
        name, call_id = calls[position] if position < len(calls) else ("", "")
        yield {"role": "tool", "tool_call_id": call_id, "name": name or None, "content": seen.text}


def _assistant(turn: Turn, trajectory: Trajectory, reading: Reading) -> dict[str, object]:
    text = reading.text(turn, trajectory)
    if text.words is None or not turn.tool_calls:
        # A call that did not parse stays in the text as it was sampled.
        return {"role": "assistant", "content": text.sampled}
    calls = [
        {"id": name, "name": call.name, "arguments": _arguments(call)}
        for call, name in zip(turn.tool_calls, call_ids(turn), strict=True)
    ]
    return {"role": "assistant", "content": text.words, "tool_calls": calls}


def _arguments(call: ToolCall) -> str:
    parsed = call.status is CallStatus.OK
    return encode(call.arguments).decode() if parsed else call.raw
