"""Export in the layout of the Agentic Rollout Library, for scripts that read it.

The layout has `trajectories/` (chats, whose first line describes the episode), `patches/`,
`profiles/` (events, and a timeline as HTML) and `summary.json`. No number is an estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from swe_rollout.errors import TaskError
from swe_rollout.export.chat import Reading, messages
from swe_rollout.export.files import FolderFormat, encode, line
from swe_rollout.export.patches import PatchFilter
from swe_rollout.export.profile import Event, events, summary
from swe_rollout.export.statistics import JobStatistics
from swe_rollout.types.episode import StopReason
from swe_rollout.types.trajectory import Trajectory

_TIMES_OUT = frozenset({StopReason.TIME_LIMIT})


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Facts about the job for the summary."""

    timeout_seconds: float
    """The time limit of an episode."""
    max_tokens: int
    """The token limit for a generation."""
    max_concurrent: int
    base_url: str = ""
    """The address of the engine; empty if it has none."""


class _Names:
    """The paths of an episode's files."""

    def __init__(self, stem: str, *, has_patch: bool) -> None:
        self.trajectory = f"trajectories/{stem}.jsonl"
        self.patch = f"patches/{stem}.patch" if has_patch else None
        self.profile = f"profiles/{stem}_profile.json"
        self.timeline = f"profiles/{stem}_timeline.html"


def _stem(trajectory: Trajectory) -> str:
    """Return `<id>_<YYYYmmdd_HHMMSS>`; samples after the first have their number in between."""
    episode = trajectory.episode
    try:
        time = datetime.fromisoformat(trajectory.finished_at).strftime("%Y%m%d_%H%M%S")
    except ValueError as error:
        raise TaskError("its time is not readable", why=str(error), retryable=False) from error
    name = episode.instance.replace("/", "__")
    return f"{name}_{time}" if episode.sample == 0 else f"{name}__sample{episode.sample}_{time}"


def _result(trajectory: Trajectory, names: _Names, messages_count: int) -> dict[str, object]:
    failure, reward, verdict = trajectory.failure, trajectory.reward, trajectory.verdict
    stop = trajectory.stop_reason
    return {
        "success": failure is None and bool(trajectory.patch),
        "instance_id": trajectory.episode.instance,
        "sample": trajectory.episode.sample,
        "patch_file": names.patch,
        "trajectory_file": names.trajectory,
        "profiler_file": names.profile,
        "timeline_file": names.timeline,
        "error": failure and failure.message,
        "error_details": failure and {"error_type": failure.type, "error_message": failure.message},
        "timeout": stop in _TIMES_OUT,
        "final_reward": None if reward is None else reward.value,
        "verdict": None if verdict is None else verdict.status,
        "model_name": trajectory.policy,
        "stats": {
            "rounds": len(trajectory.turns),
            "trajectory_length": messages_count,
            "tool_calls": sum(len(turn.tool_calls) for turn in trajectory.turns),
            "llm_calls": len(trajectory.turns),
            "is_completed": failure is None,
            "step_types": _step_types(trajectory),
            "called_submit": stop is StopReason.SUBMITTED,
            "reached_max_rounds": stop is StopReason.TURN_LIMIT,
            "termination_reason": stop or (failure and failure.type),
        },
    }


def _step_types(trajectory: Trajectory) -> dict[str, int]:
    calls = sum(len(turn.tool_calls) for turn in trajectory.turns)
    results = sum(len(turn.observations) for turn in trajectory.turns)
    final = trajectory.stop_reason is StopReason.FINISHED
    steps = {
        "observation": 1,  # the task
        "thought": len(trajectory.turns) - final,
        "action": calls,
        "action_result": results,
        "final_answer": int(final),
    }
    return {name: count for name, count in steps.items() if count}


def _event(event: Event) -> dict[str, object]:
    return {
        "event_id": event.id,
        "parent_id": event.parent,
        "event_type": event.type,
        "name": event.name,
        "start_time": event.start_s,
        "end_time": event.start_s + event.duration_s,
        "duration": event.duration_s,
        "metadata": {"detail": event.detail, "start_is_exact": event.start_is_exact},
    }


def _profile(trajectory: Trajectory) -> dict[str, object]:
    found = list(events(trajectory))
    return {
        "instance_id": trajectory.episode.instance,
        "events": [_event(each) for each in found],
        "summary": {
            kind: {"count": each.count, "total_time": each.total_s, "max_time": each.longest_s}
            for kind, each in summary(found).items()
        },
    }


@dataclass(slots=True)
class _Totals:
    """The counts in the summary."""

    ids: dict[str, list[str]] = field(
        default_factory=lambda: {"successful": [], "failed": [], "timeout": []}
    )
    patches: int = 0
    profiles: list[str] = field(default_factory=list)
    timelines: list[str] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    models: set[str] = field(default_factory=set)
    stops: Counter[str] = field(default_factory=Counter)
    episodes: JobStatistics = field(default_factory=JobStatistics)
    first: str = ""
    last: str = ""

    def add(self, trajectory: Trajectory, names: _Names) -> None:
        stop, failure = trajectory.stop_reason, trajectory.failure
        kind = "failed" if failure else "timeout" if stop in _TIMES_OUT else "successful"
        self.ids[kind].append(trajectory.episode.instance)
        self.patches += failure is None and bool(trajectory.patch)
        self.profiles.append(names.profile)
        self.timelines.append(names.timeline)
        self.models.add(trajectory.policy)
        self.stops[stop or (failure.type if failure else "")] += 1
        for turn in trajectory.turns:
            # Only calls that ran have names of tools; other names are the policy's inventions.
            self.tools.update(call.name for call in turn.tool_calls if call.status == "ok")
        self.episodes.add(trajectory)
        self.first = min(self.first or trajectory.finished_at, trajectory.finished_at)
        self.last = max(self.last, trajectory.finished_at)

    def summary(self, job: JobFacts) -> dict[str, object]:
        episodes = sum(map(len, self.ids.values()))
        total = {name: each.total for name, each in self.episodes.episodes.items()}
        hours, turns = total["total_s"] / 3600, int(total["turns"])
        return {
            "total_instances": episodes,
            "skipped_instances": 0,
            "failed_instances": len(self.ids["failed"]),
            "timeout_instances": len(self.ids["timeout"]),
            "successful_patches": self.patches,
            **{f"{kind}_instance_ids": ids for kind, ids in self.ids.items()},
            "skipped_instance_ids": [],
            "timeout_seconds": job.timeout_seconds,
            "max_tokens": job.max_tokens,
            "max_concurrent": job.max_concurrent,
            "base_url": job.base_url,
            "local_mode": False,
            "model_name": ", ".join(sorted(self.models)),
            "model_index_range": None,
            "profiling_enabled": True,
            "timestamp": self.last,
            "first_finished_at": self.first,
            "elapsed_time": total["total_s"],
            "statistics": {
                "throughput": {"episodes_per_sandbox_hour": episodes / hours if hours else None},
                "tool_usage": {"calls": dict(self.tools), "seconds": total["tools_s"]},
                "llm_usage": {
                    "calls": turns,
                    "completion_tokens": int(total["sampled_tokens"]),
                    "seconds": total["engine_s"],
                },
                "trajectory": {
                    "mean_rounds": turns / episodes if episodes else None,
                    "termination_reasons": dict(self.stops),
                },
            },
            "profiler_files": self.profiles,
            "timeline_files": self.timelines,
            "profiles_dir": "profiles",
        }


@dataclass(slots=True)
class LibraryLayout:
    """Writes episodes one by one, and a summary at the end."""

    reading: Reading
    patch_filter: PatchFilter
    timeline: Callable[[Trajectory], str]
    """Draws an episode as an HTML page."""
    job: JobFacts
    _totals: _Totals = field(default_factory=_Totals)

    def format(self) -> FolderFormat:
        """Return the format. Use each layout for one folder only."""
        return FolderFormat(self._files, self._summary, resumes=False)

    def _files(self, trajectory: Trajectory) -> Iterator[tuple[str, bytes]]:
        stem = _stem(trajectory)
        names = _Names(stem, has_patch=bool(trajectory.patch))
        filtered = self.patch_filter.apply(trajectory.patch)
        # This comes first because it raises for an episode that can't be shown.
        chat = list(messages(trajectory, self.reading))
        result = _result(trajectory, names, len(chat))
        if self.patch_filter.globs:
            result["dropped_globs"] = list(self.patch_filter.globs)
            result["dropped_paths"] = list(filtered.dropped)
        yield names.trajectory, b"".join(map(line, [{"role": "meta", **result}, *chat]))
        if names.patch is not None:
            yield names.patch, filtered.text.encode(errors="replace")
        yield names.profile, encode(_profile(trajectory))
        yield names.timeline, self.timeline(trajectory).encode(errors="replace")
        self._totals.add(trajectory, names)

    def _summary(self) -> Iterator[tuple[str, bytes]]:
        yield "summary.json", encode(self._totals.summary(self.job)) + b"\n"
