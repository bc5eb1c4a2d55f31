"""Export to ATIF, Harbor's trajectory interchange format: one JSON document per episode.

The sampled token ids and logprobs of each turn are in its metrics. Data for which ATIF has no field
is in `extra`, under our own names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from swe_rollout.export.chat import Reading, TurnText, branches_of, call_ids, opening
from swe_rollout.export.files import FolderFormat, line
from swe_rollout.tokens.log import SegmentKind
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus, Observation, ToolCall, Turn

SCHEMA_VERSION = "ATIF-v1.7"
"""The oldest version with every field that is written here."""
AGENT = "swe-rollout"


def atif_format(reading: Reading) -> FolderFormat:
    """Return the format: `<instance>/<sample>/trajectory.json`.

    Each further branch is a document of its own, such as `branch-1.json`.
    """

    def files(trajectory: Trajectory) -> Iterator[tuple[str, bytes]]:
        episode = trajectory.episode
        for branch in branches_of(trajectory):
            name = f"branch-{branch}" if branch else "trajectory"
            path = f"{episode.instance}/{episode.sample}/{name}.json"
            yield path, line(document(trajectory, reading, branch=branch))

    return FolderFormat(files)


def document(trajectory: Trajectory, reading: Reading, *, branch: int = 0) -> dict[str, object]:
    """Return a branch of an episode as an ATIF document."""
    prompt = reading.prompt(trajectory)
    agent: dict[str, object] = {
        "name": AGENT,
        "version": trajectory.software.get("swe-rollout", "unknown"),
        "model_name": trajectory.policy,
    }
    if prompt.tools:
        agent["tool_definitions"] = list(prompt.tools)
    turns = [turn for turn in trajectory.turns if turn.branch == branch]
    steps = [
        {"step_id": number, **step}
        for number, step in enumerate(_steps(trajectory, reading, branch, turns), 1)
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": str(trajectory.episode),
        "trajectory_id": f"{trajectory.episode}#{branch}" if branch else str(trajectory.episode),
        "agent": agent,
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": sum(turn.request.length for turn in turns),
            "total_completion_tokens": sum(turn.completion_tokens for turn in turns),
            "total_cached_tokens": sum(turn.cached_tokens for turn in turns),
            "total_steps": len(steps),
        },
        "extra": _result(trajectory),
    }


def _result(trajectory: Trajectory) -> dict[str, object]:
    verdict, reward, failure = trajectory.verdict, trajectory.reward, trajectory.failure
    return {
        "instance_id": trajectory.episode.instance,
        "sample": trajectory.episode.sample,
        "reward": None if reward is None else reward.value,
        "verdict": None if verdict is None else verdict.status,
        "stop_reason": trajectory.stop_reason,
        **({"stop_evidence": shown} if (shown := trajectory.stop_evidence) else {}),
        "failure": None if failure is None else failure.type,
        "patch": trajectory.patch,
        "finished_at": trajectory.finished_at,
        "spec_digest": trajectory.spec_digest,
    }


def _steps(
    trajectory: Trajectory, reading: Reading, branch: int, turns: Iterable[Turn]
) -> Iterator[dict[str, object]]:
    for first in opening(trajectory, reading, branch=branch):
        yield {"source": first.role, "message": first.text}
    sampled = _sampled(trajectory)
    for turn in turns:
        if turn.message:
            yield {"source": "user", "message": turn.message}
        yield _step(turn, reading.text(turn, trajectory), sampled.get(turn.index))


def _step(turn: Turn, text: TurnText, sampled: _Sampled | None) -> dict[str, object]:
    split = text.words is not None
    step: dict[str, object] = {
        "source": "agent",
        "message": text.words if split else text.sampled,
        "llm_call_count": 1,
        "metrics": _metrics(turn, sampled),
        "extra": {
            "finish_reason": turn.finish_reason,
            "engine_s": turn.engine_s,
            "tools_s": turn.tools_s,
        },
    }
    ids = call_ids(turn)
    if turn.tool_calls and split:
        step["tool_calls"] = [
            _call(call, name) for call, name in zip(turn.tool_calls, ids, strict=True)
        ]
    if turn.observations:
        step["observation"] = {
            "results": [
                _seen(seen, ids[position] if split else None)
                for position, seen in enumerate(turn.observations)
            ]
        }
    return step


def _call(call: ToolCall, name: str) -> dict[str, object]:
    arguments = call.arguments if call.status is CallStatus.OK else {}
    return {"tool_call_id": name, "function_name": call.name, "arguments": arguments}


def _seen(seen: Observation, call: str | None) -> dict[str, object]:
    result: dict[str, object] = {} if call is None else {"source_call_id": call}
    extra = {
        "exit_code": seen.exit_code,
        "timed_out": seen.timed_out,
        "truncated": seen.truncated,
        "duration_s": seen.duration_s,
    }
    return {**result, "content": seen.text, "extra": extra}


def _metrics(turn: Turn, sampled: _Sampled | None) -> dict[str, object]:
    counts: dict[str, object] = {
        "prompt_tokens": turn.request.length,
        "completion_tokens": turn.completion_tokens,
        "cached_tokens": turn.cached_tokens,
    }
    if sampled is None or len(sampled.ids) != turn.completion_tokens:
        return counts
    return {**counts, "completion_token_ids": sampled.ids, "logprobs": sampled.logprobs}


@dataclass(slots=True)
class _Sampled:
    """What the policy sampled in one turn."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


def _sampled(trajectory: Trajectory) -> dict[int, _Sampled]:
    """Return what was sampled in each turn, from the token sequence that the turn belongs to."""
    found: dict[int, _Sampled] = {}
    for branch in trajectory.samples:
        turns: dict[int, _Sampled] = {}
        for segment in branch.segments:
            if segment.kind is SegmentKind.SAMPLED:
                turn = turns.setdefault(segment.turn, _Sampled())
                turn.ids += branch.token_ids[segment.start : segment.end]
                values = branch.logprobs[segment.start : segment.end]
                turn.logprobs += [value for value in values if value is not None]
        found |= turns
    return found
