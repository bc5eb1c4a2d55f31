"""Profile an episode: show where its time went, as events made from the times in its record.

Durations are measured. The starts of phases are recorded, too; for turns and calls only the order
is, so each is placed after the one before it, at the earliest time at which it can have begun, and
marked accordingly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from swe_rollout.export.files import FileFormat, encode
from swe_rollout.tokens.branch import BranchKind
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import ToolCall, Turn


class EventType(StrEnum):
    """Kinds of events, under the names that readers of profiles expect."""

    INSTANCE_PROCESSING = "instance_processing"
    POD_CREATION = "pod_creation"
    TRAJECTORY_STEP = "trajectory_step"
    LLM_CALL = "llm_call"
    TOOL_EXECUTION = "tool_execution"
    BASH_COMMAND = "bash_command"
    FILE_READ = "file_read"
    FILE_WRITE = "file_write"
    SEARCH_OPERATION = "search_operation"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Event:
    """A span of an episode's time."""

    id: int
    """Unique in its profile, from 0."""
    parent: int | None
    type: EventType
    name: str
    start_s: float
    """Seconds since the attempt began."""
    duration_s: float
    """The measured duration in seconds."""
    start_is_exact: bool
    """Whether the start is recorded; otherwise it is the earliest possible one."""
    detail: str = ""
    """A detail such as the status of a call; it may be a policy's text."""
    branch: int | None = None
    """The branch that a turn and its calls belong to; None for the phases of the episode."""


_READS = frozenset({"view", "view_file", "file_read", "ls"})
_SEARCHES = frozenset({"search", "search_code", "search_files", "grep"})
_SHELLS = frozenset({"bash", "execute_bash", "bash_executor", "k8s_bash"})
_MICROSECONDS = 1e6
_WHOLE = 0
"""The id of the event that covers the whole episode."""


def events(trajectory: Trajectory) -> Iterator[Event]:
    """Yield the events of an episode, parents first."""
    for number, event in enumerate(_events(trajectory)):
        yield replace(event, id=number)


def _events(trajectory: Trajectory) -> Iterator[Event]:
    timing, kinds = trajectory.timing, EventType
    ended = str(trajectory.stop_reason or "failed")
    yield _phase(kinds.INSTANCE_PROCESSING, str(trajectory.episode), 0.0, timing.total_s, ended)
    if timing.start_s:
        yield _phase(kinds.POD_CREATION, "sandbox start and preparation", 0.0, timing.start_s)
    places, number = _Places(trajectory), 1 + bool(timing.start_s)
    for turn in trajectory.turns:
        found = list(_turn(turn, places.take(turn), number))
        yield from found
        number += len(found)
    if timing.grade_s:
        start = max(timing.start_s, timing.total_s - timing.grade_s)
        yield _phase(kinds.CUSTOM, "grading", start, timing.grade_s)


def _phase(kind: EventType, name: str, start: float, seconds: float, detail: str = "") -> Event:
    parent = None if kind is EventType.INSTANCE_PROCESSING else _WHOLE
    return Event(0, parent, kind, name, start, seconds, start_is_exact=True, detail=detail)


def unaccounted_s(trajectory: Trajectory) -> float:
    """Return the seconds outside all phases and turns, as for rendering, parsing and the diff."""
    timing = trajectory.timing
    # The turns of a sub-agent are part of the call that started it.
    nested = {each.index for each in trajectory.branches if each.kind is BranchKind.SUB_AGENT}
    own = (turn for turn in trajectory.turns if turn.branch not in nested)
    turns = sum(turn.engine_s + turn.tools_s for turn in own)
    return max(0.0, timing.total_s - timing.start_s - timing.grade_s - turns)


class _Places:
    """Places the turns of a branch one after another, a sub-agent's within its parent's call."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._begins_s = trajectory.timing.start_s
        self._branches = {branch.index: branch for branch in trajectory.branches}
        self._ends_s: dict[int, float] = {}
        self._calls_s: dict[int, float] = {}
        """When the calls in the last turn of each branch began."""

    def take(self, turn: Turn) -> float:
        """Return the start of the next turn in the record, in seconds since the attempt began."""
        start = self._ends_s.get(turn.branch)
        if start is None:
            start = self._first(turn.branch)
        self._calls_s[turn.branch] = start + turn.engine_s
        self._ends_s[turn.branch] = start + turn.engine_s + turn.tools_s
        return start

    def _first(self, index: int) -> float:
        branch = self._branches.get(index)
        if branch is None or branch.parent is None:
            return self._begins_s
        is_nested = branch.kind is BranchKind.SUB_AGENT
        return (self._calls_s if is_nested else self._ends_s).get(branch.parent, self._begins_s)


def _turn(turn: Turn, at: float, number: int) -> Iterator[Event]:
    """Yield the events of a turn that begins at `at` seconds; the turn's own has id `number`."""

    def event(parent: int, kind: EventType, name: str, seconds: float, detail: str = "") -> Event:
        return Event(
            0,
            parent,
            kind,
            name,
            at,
            seconds,
            start_is_exact=False,
            detail=detail,
            branch=turn.branch,
        )

    whole_s = turn.engine_s + turn.tools_s
    yield event(_WHOLE, EventType.TRAJECTORY_STEP, f"turn {turn.index}", whole_s)
    said = f"turn {turn.index}: {turn.completion_tokens} tokens"
    yield event(number, EventType.LLM_CALL, said, turn.engine_s, str(turn.finish_reason))
    at += turn.engine_s
    for call, seen in zip(turn.tool_calls, turn.observations, strict=False):
        how = "timed out" if seen.timed_out else str(call.status)
        yield event(number, _kind(call), call.name or "call", seen.duration_s, how)
        at += seen.duration_s


def _kind(call: ToolCall) -> EventType:
    command = call.arguments.get("command")
    match call.name, command:
        case name, _ if name in _SHELLS:
            return EventType.BASH_COMMAND
        case name, _ if name in _SEARCHES:
            return EventType.SEARCH_OPERATION
        case "str_replace_editor" | "file_editor", "view":
            return EventType.FILE_READ
        case "str_replace_editor" | "file_editor", _:
            return EventType.FILE_WRITE
        case name, _ if name in _READS:
            return EventType.FILE_READ
        case _:
            return EventType.TOOL_EXECUTION


def chrome_trace_format() -> FileFormat:
    """Return the format of Chrome's trace viewer and Perfetto.

    An episode is a process with a thread for its phases and one for the turns of each branch.
    Spans in a thread are nested or follow each other, as these viewers require.
    """
    count = iter(range(1, 1 << 62))

    def part(trajectory: Trajectory) -> bytes:
        return b",\n".join(map(encode, _trace(trajectory, next(count))))

    note = b'"displayTimeUnit": "ms", "otherData": {"starts": %s}' % encode(STARTS)

    def resumed(_: EpisodeId) -> None:
        next(count)

    head = b'{%s,\n"traceEvents": [\n' % note
    return FileFormat(part, head, b",\n", b"\n]}\n", resumed=resumed)


STARTS = (
    "durations are measured; starts of turns and calls are the earliest possible ones "
    "(args.start_is_exact)"
)
"""A note that readers of a timeline must know."""


def _trace(trajectory: Trajectory, process: int) -> Iterator[dict[str, object]]:
    yield _named("process_name", str(trajectory.episode), process, 0)
    yield _named("thread_name", "phases", process, 0)
    for branch in sorted({turn.branch for turn in trajectory.turns}):
        yield _named("thread_name", f"turns of branch {branch}", process, branch + 1)
    began = round(_began(trajectory) * _MICROSECONDS)
    ends: dict[int, int] = {}
    for event in events(trajectory):
        thread = 0 if event.branch is None else event.branch + 1
        start = began + round(event.start_s * _MICROSECONDS)
        end = began + round((event.start_s + event.duration_s) * _MICROSECONDS)
        if event.parent is not None and (event.branch is None or event.parent != _WHOLE):
            # Sums of durations differ by rounding errors.
            end = min(end, ends[event.parent])
            start = min(start, end)
        ends[event.id] = end
        yield {
            "ph": "X",
            "name": event.name,
            "cat": event.type,
            "ts": start,
            "dur": end - start,
            "pid": process,
            "tid": thread,
            "args": {"detail": event.detail, "start_is_exact": event.start_is_exact},
        }


def _named(kind: str, name: str, process: int, thread: int) -> dict[str, object]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _began(trajectory: Trajectory) -> float:
    """Return when the attempt began, in seconds since 1970, from its recorded end and length."""
    try:
        finished = datetime.fromisoformat(trajectory.finished_at).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, finished - trajectory.timing.total_s)


@dataclass(frozen=True, slots=True)
class TypeSummary:
    """The events of one type."""

    count: int
    total_s: float
    longest_s: float


def summary(found: Iterable[Event]) -> dict[EventType, TypeSummary]:
    """Sum up events by type, the largest total first."""
    sums: dict[EventType, TypeSummary] = {}
    for event in found:
        before = sums.get(event.type, TypeSummary(0, 0.0, 0.0))
        sums[event.type] = TypeSummary(
            before.count + 1,
            before.total_s + event.duration_s,
            max(before.longest_s, event.duration_s),
        )
    return dict(sorted(sums.items(), key=lambda item: -item[1].total_s))
