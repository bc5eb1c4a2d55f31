"""What the live view costs: events a second that it counts, the time of a frame, its memory.

`--episodes` of one job are reported with four turns each; the memory that is still held after them
is the view's own, since nothing else is kept.
"""

from __future__ import annotations

import gc
import io
import time
import tracemalloc
from argparse import Namespace
from typing import Final

from rich.console import Console

from rollout_dev.report import Report, Row, option, program
from swe_rollout.cli.live_layout import draw
from swe_rollout.cli.live_screen import SCREEN_S
from swe_rollout.events import Phase
from swe_rollout.live.progress import LiveProgress, LiveTitle
from swe_rollout.tokens.log import RequestProof
from swe_rollout.types.episode import EpisodeId, StopReason, Timing
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import FinishReason, Turn
from swe_rollout.types.verdict import Reward, RewardTerm, TestReport, Verdict, VerdictStatus

TURNS: Final = 4
SAMPLES: Final = 8
FRAMES: Final = 200
GOAL_KIB: Final = 256.0
GOAL_FRAME_SHARE: Final = 0.05
"""The share of one core spent on frames."""


@program(option("--episodes", type=int, default=50_000, help="to count"), shows_logs=True)
def main(given: Namespace) -> Report:
    """Measure the view."""
    progress = _progress(given.episodes)
    began = time.perf_counter()
    _play(progress, given.episodes)
    played_s = time.perf_counter() - began
    frame_s = _draw(progress)
    held_kib = _held_kib(min(given.episodes, 20_000))
    events = given.episodes * (TURNS + 2)
    figures = {
        "events_per_s": round(events / played_s),
        "frame_ms": round(1e3 * frame_s, 2),
        "core_share_of_frames": round(frame_s / SCREEN_S, 4),
        "held_kib": round(held_kib, 1),
    }
    return Report(
        "live",
        (Row("live view", figures),),
        ok=held_kib <= GOAL_KIB and frame_s / SCREEN_S <= GOAL_FRAME_SHARE,
        notes=(
            f"an episode is {TURNS + 2} events: its phase, {TURNS} turns, its end",
            f"goals: {GOAL_KIB:g} KiB held, {GOAL_FRAME_SHARE:.0%} of a core for frames",
        ),
    )


def _progress(episodes: int) -> LiveProgress:
    progress = LiveProgress(LiveTitle("bench", ("none",), group_size=lambda _: SAMPLES))
    progress.planned(episodes, 0)
    return progress


def _play(progress: LiveProgress, episodes: int) -> None:
    request = RequestProof(1000, "")
    turns = [
        Turn(n, request, "", FinishReason.STOP, 100, 900, engine_s=0.5 + n, tools_s=0.2)
        for n in range(TURNS)
    ]
    for number in range(episodes):
        episode = EpisodeId("bench", f"task-{number // SAMPLES}", number % SAMPLES)
        progress.phase(episode, Phase.AGENT)
        for turn in turns:
            progress.turn(episode, turn)
        progress.done(_ended(episode, number % 2))


def _ended(episode: EpisodeId, reward: float) -> Trajectory:
    status = VerdictStatus.RESOLVED if reward else VerdictStatus.UNRESOLVED
    return Trajectory(
        episode=episode,
        policy="none",
        token_ids=(),
        loss_mask=(),
        logprobs=(),
        segments=(),
        turns=(),
        stop_reason=StopReason.SUBMITTED,
        patch="",
        verdict=Verdict(status, TestReport({}, {})),
        reward=Reward((RewardTerm("resolved", reward),)),
        failure=None,
        attempt=1,
        seed=None,
        timing=Timing(),
        spec_digest="",
        software={},
        finished_at="",
    )


def _draw(progress: LiveProgress) -> float:
    """Return the seconds for drawing a frame, with its colours."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=40)
    began = time.perf_counter()
    for _ in range(FRAMES):
        console.print(*draw(progress.snapshot(), width=120, height=40), sep="\n")
    return (time.perf_counter() - began) / FRAMES


def _held_kib(episodes: int) -> float:
    """Return the memory that a progress display holds after so many episodes."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    progress = _progress(episodes)
    _play(progress, episodes)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / 1024
