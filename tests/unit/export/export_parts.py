"""Records to export, and how to read them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

from swe_rollout.errors import SandboxError
from swe_rollout.export.chat import Reading, TaskPrompt
from swe_rollout.tokens.log import TokenLog, nullable
from swe_rollout.types.episode import EpisodeId, Failure, ForkedFrom, StopReason, Timing
from swe_rollout.types.trajectory import ChatLine, TokenPath, Trajectory
from swe_rollout.types.turn import CallStatus, FinishReason, Observation, ToolCall, Turn
from swe_rollout.types.verdict import (
    Reward,
    RewardTerm,
    TestReport,
    TestStatus,
    Verdict,
    VerdictStatus,
)

PATCH = (
    "diff --git a/pyproject.toml b/pyproject.toml\n--- a/pyproject.toml\n+++ b/pyproject.toml\n"
    "@@ -1 +1 @@\n-a\n+b\n"
    "diff --git a/src/x.py b/src/x.py\n--- a/src/x.py\n+++ b/src/x.py\n"
    "@@ -1,3 +1,3 @@\n-old\r\n+new é\r\n \n \n"
    "diff --git a/tests/deep/test_x.py b/tests/deep/test_x.py\nnew file mode 100644\n"
    "--- /dev/null\n+++ b/tests/deep/test_x.py\n@@ -0,0 +1 @@\n+x\n"
)
"""Ends of lines that differ, and blank context lines at the end of a file's part."""
LOST = Failure.of(SandboxError("lost"))


def turn(index: int, log: TokenLog, *, calls: int = 1, ok: bool = True, text: str = "") -> Turn:
    """Sample a turn of five tokens."""
    request = log.request()
    log.append_sampled([7, 8, 9, 10, 11], [-0.5] * 5, turn=index)
    log.append_delta([1, 2], turn=index + 1)
    status = CallStatus.OK if ok else CallStatus.INVALID_JSON
    return Turn(
        index=index,
        request=request,
        text=text or f"<think>hm</think>I look.<call {index}><|im_end|>",
        finish_reason=FinishReason.STOP,
        completion_tokens=5,
        cached_tokens=3,
        tool_calls=tuple(
            ToolCall(status, "raw", "bash" if ok else "", {"command": "ls"} if ok else {})
            for _ in range(calls)
        ),
        observations=tuple(
            Observation(f"out {number}", exit_code=number, duration_s=0.25)
            for number in range(calls)
        ),
        engine_s=1.0,
        tools_s=0.5,
    )


def trajectory(instance: str = "a", sample: int = 0, *, text: str = "") -> Trajectory:
    """Return an episode: two calls at once, then one that did not parse, then words."""
    log = TokenLog()
    log.append_prompt(range(100, 120))
    turns = (
        turn(0, log, calls=2, text=text),
        turn(1, log, ok=False, text=text),
        turn(2, log, calls=0, text=text),
    )
    verdict = Verdict(
        VerdictStatus.RESOLVED, TestReport({"t": TestStatus.PASSED}, {"u": TestStatus.PASSED})
    )
    return Trajectory(
        episode=EpisodeId("demo", instance, sample),
        policy="scripted:gold",
        token_ids=tuple(log.ids),
        loss_mask=tuple(log.loss_mask.tolist()),
        logprobs=nullable(log.logprobs),
        segments=log.segments,
        turns=turns,
        stop_reason=StopReason.FINISHED,
        patch=PATCH,
        verdict=verdict,
        reward=Reward((RewardTerm("resolved", 1.0),)),
        failure=None,
        attempt=1,
        seed=None,
        timing=Timing(start_s=2.0, engine_s=3.0, tools_s=1.5, grade_s=4.0, total_s=12.0),
        spec_digest="0123456789ab",
        software={"swe-rollout": "1.2.3"},
        finished_at="2026-01-02T03:04:05.678+00:00",
        token_path=TokenPath("chatml", "hermes", "f" * 16),
    )


def branched() -> Trajectory:
    """Return an episode whose agent said something, and whose second turn is a sub-agent's."""
    found = trajectory()
    first, second, third = found.turns
    turns = (first, replace(second, branch=1), replace(third, message="and now?"))
    branch = replace(found.main_branch, index=1, parent=0)
    lines = (
        *(ChatLine("system", "be good"), ChatLine("user", "solve a")),
        ChatLine("user", "look into it", 1),
    )
    return replace(found, turns=turns, branches=(branch,), prompts=lines)


def forked(*, trained: bool = False) -> Trajectory:
    """Return an episode that inherited its first turn."""
    found = trajectory()
    length = found.turns[1].request.length
    sampled = sum(found.loss_mask[:length])
    origin = ForkedFrom("demo/a/0", "file:///runs/demo", 1, "0" * 64, length, sampled, trained)
    return replace(found, forked_from=origin)


def failed(found: Trajectory, *, patch: str = "") -> Trajectory:
    """Return an episode that broke."""
    return replace(found, failure=LOST, verdict=None, reward=None, stop_reason=None, patch=patch)


@dataclass(frozen=True)
class Text:
    """What a turn says, as a test wants it."""

    sampled: str
    words: str | None


def reading(*, system: str = "be good") -> Reading:
    """Read turns whose calls are written as `<call N>`, and ends as `<|im_end|>`."""

    def text(turn: Turn, _: Trajectory) -> Text:
        sampled = turn.text.removesuffix("<|im_end|>")
        failed = any(call.status is not CallStatus.OK for call in turn.tool_calls)
        return Text(sampled, None if failed else sampled.partition("<call")[0])

    return Reading(
        lambda each: TaskPrompt(system, f"solve {each.episode.instance}", ({"type": "function"},)),
        text,
    )


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def stream(*trajectories: Trajectory) -> AsyncIterator[Trajectory]:
    """Yield them."""
    for each in trajectories:
        yield each
