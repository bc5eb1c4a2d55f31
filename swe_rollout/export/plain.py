"""Export records as they are stored (JSON, JSON Lines), and as a text to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from swe_rollout.export.files import FileFormat
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import to_json
from swe_rollout.types.turn import Observation, ToolCall, Turn

JSON = FileFormat(to_json, head=b"[\n", between=b",\n", tail=b"\n]\n")
"""One array of records (docs/reference/trajectory.md)."""

JSONL = FileFormat(lambda trajectory: to_json(trajectory) + b"\n")
"""One record on each line."""


def text_format(show: Callable[[str], str]) -> FileFormat:
    """Return the format for people; `show` makes control characters of untrusted text visible."""

    def part(trajectory: Trajectory) -> bytes:
        text = "\n".join(_lines(trajectory))
        return show(text).encode(errors="replace") + b"\n"

    return FileFormat(part, between=b"\n")


def _lines(trajectory: Trajectory) -> Iterator[str]:
    yield f"==== {trajectory.episode}"
    yield f"policy {trajectory.policy}, attempt {trajectory.attempt}, {trajectory.finished_at}"
    yield _ending(trajectory)
    for turn in trajectory.turns:
        yield ""
        yield from _turn(turn)
    if trajectory.patch:
        yield ""
        yield "---- patch"
        yield trajectory.patch.removesuffix("\n")
    if trajectory.verdict is not None:
        yield ""
        yield f"---- verdict: {trajectory.verdict.status}"
        report = trajectory.verdict.report
        for name, status in (report.fail_to_pass | report.pass_to_pass | report.others).items():
            yield f"{status} {name}"
        for finding in trajectory.verdict.integrity:
            yield f"finding: {finding}"


def _ending(trajectory: Trajectory) -> str:
    failure, reward = trajectory.failure, trajectory.reward
    ended = f"failed: {failure.type}: {failure.message}" if failure else trajectory.stop_reason
    if trajectory.stop_evidence:
        ended = f"{ended} ({trajectory.stop_evidence})"
    earned = "no reward" if reward is None else f"reward {reward.value:g}"
    return f"{ended}, {earned}, {len(trajectory.turns)} turns, {len(trajectory.token_ids)} tokens"


def _turn(turn: Turn) -> Iterator[str]:
    seconds = f"engine {turn.engine_s:.3f} s, tools {turn.tools_s:.3f} s"
    yield f"---- turn {turn.index}: {turn.completion_tokens} tokens, {seconds}"
    yield turn.text
    for position, call in enumerate(turn.tool_calls):
        done = position < len(turn.observations)
        yield from _call(position, call, turn.observations[position] if done else None)


def _call(position: int, call: ToolCall, seen: Observation | None) -> Iterator[str]:
    name = call.name or "call"
    if seen is None:
        yield f"-- {position} {name}: {call.status}, not run"
        return
    marks = [
        str(call.status),
        *(["timed out"] if seen.timed_out else []),
        *(["cut"] if seen.truncated else []),
        f"{seen.duration_s:.3f} s",
    ]
    yield f"-- {position} {name}: {', '.join(marks)}"
    yield seen.text
