"""Export to verifiers' `Trace`: one JSON document on each line, the records of its environments.

verifiers' `Branch` reads each path of the message graph back as one training sample.
"""

from __future__ import annotations

from swe_rollout.errors import TaskError
from swe_rollout.export.chat import Reading
from swe_rollout.export.files import FileFormat, line
from swe_rollout.export.message_graph import MessageNode, message_graph
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason, Turn

TRACE_VERSION = 1
_STOPS = {
    StopReason.SUBMITTED: "agent_completed",
    StopReason.FINISHED: "agent_completed",
    StopReason.TURN_LIMIT: "max_turns",
    StopReason.TOKEN_LIMIT: "max_output_tokens",
    StopReason.CONTEXT_FULL: "max_total_tokens",
    StopReason.TIME_LIMIT: "agent_timeout",
}
"""In verifiers' words, which its `is_truncated` knows; others keep ours."""


def verifiers_format(reading: Reading) -> FileFormat:
    """Return the format. An episode over a chat API is left out: a trace of it trains nothing."""
    return FileFormat(lambda trajectory: line(trace(trajectory, reading)))


def trace(trajectory: Trajectory, reading: Reading) -> dict[str, object]:
    """Return an episode as the JSON object of a trace; `rewards` are null if it was not graded.

    Raises TaskError for one without tokens, or whose first messages are not known.
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
        "sampling": used
        and {
            "temperature": used.temperature,
            "top_p": used.top_p,
            "top_k": used.top_k,
            "min_p": used.min_p,
        },
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
