"""Turn a job into a data frame of pandas or polars, with one row per episode."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final, Literal

import pyarrow as pa

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import CallStatus

FrameLibrary = Literal["pandas", "polars"]
LIBRARIES: Final[tuple[FrameLibrary, ...]] = ("pandas", "polars")
_BATCH: Final = 1024


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the frame."""

    name: str
    type: pa.DataType
    about: str
    """Its meaning and unit, for the documentation."""
    value: Callable[[Trajectory], object]


def _calls(trajectory: Trajectory) -> int:
    return sum(len(turn.tool_calls) for turn in trajectory.turns)


def _bad(trajectory: Trajectory) -> int:
    calls = (call for turn in trajectory.turns for call in turn.tool_calls)
    return sum(call.status is not CallStatus.OK for call in calls)


_TEXT, _COUNT, _SECONDS = pa.string(), pa.int64(), pa.float64()

COLUMNS: Final = (
    Column("episode", _TEXT, "`job/instance/sample`", lambda t: str(t.episode)),
    Column("job", _TEXT, "its name", lambda t: t.episode.job),
    Column("instance", _TEXT, "the task", lambda t: t.episode.instance),
    Column("sample", _COUNT, "number in its group, from 0", lambda t: t.episode.sample),
    Column("policy", _TEXT, "engine and model", lambda t: t.policy),
    Column("attempt", _COUNT, "1 for the first", lambda t: t.attempt),
    Column("stop_reason", _TEXT, "null if it failed", lambda t: t.stop_reason),
    Column("masked", pa.bool_(), "it failed: leave it out of means", lambda t: t.masked),
    Column(
        "failure_owner",
        _TEXT,
        "the part that failed, else null",
        lambda t: t.failure and t.failure.boundary.value,
    ),
    Column("failure", _TEXT, "its type, else null", lambda t: t.failure and t.failure.type),
    Column("verdict", _TEXT, "null if not graded", lambda t: t.verdict and t.verdict.status.value),
    Column("resolved", pa.bool_(), "the tests show the task solved", lambda t: t.resolved),
    Column("reward", pa.float64(), "null if not graded", lambda t: t.reward and t.reward.value),
    Column(
        "findings",
        _COUNT,
        "integrity findings",
        lambda t: len(t.verdict.integrity) if t.verdict else 0,
    ),
    Column("turns", _COUNT, "of all branches", lambda t: len(t.turns)),
    Column("tool_calls", _COUNT, "attempts at calls", _calls),
    Column("bad_calls", _COUNT, "those of them that could not be carried out", _bad),
    Column("tokens", _COUNT, "read and sampled, of all branches", lambda t: t.token_count),
    Column("sampled_tokens", _COUNT, "sampled, of all branches", lambda t: t.sampled_count),
    Column(
        "prompt_tokens",
        _COUNT,
        "of all requests together; each holds all turns before it",
        lambda t: sum(turn.request.length for turn in t.turns),
    ),
    Column(
        "cached_tokens",
        _COUNT,
        "prompt tokens that the engine had in its prefix cache",
        lambda t: sum(turn.cached_tokens for turn in t.turns),
    ),
    Column("branches", _COUNT, "training samples, 1 or more", lambda t: 1 + len(t.branches)),
    Column("patch_bytes", _COUNT, "as UTF-8", lambda t: len(t.patch.encode(errors="replace"))),
    Column("start_s", _SECONDS, "seconds until the sandbox was ready", lambda t: t.timing.start_s),
    Column("engine_s", _SECONDS, "seconds in the engine", lambda t: t.timing.engine_s),
    Column("tools_s", _SECONDS, "seconds in tools", lambda t: t.timing.tools_s),
    Column("grade_s", _SECONDS, "seconds of grading", lambda t: t.timing.grade_s),
    Column("total_s", _SECONDS, "seconds from start to end", lambda t: t.timing.total_s),
    Column(
        "finished_at",
        pa.timestamp("ms", tz="UTC"),
        "UTC; null if not known",
        lambda t: _time(t.finished_at),
    ),
    Column("spec_digest", _TEXT, "of the settings of the job", lambda t: t.spec_digest),
)
"""All columns, in order."""
SCHEMA: Final = pa.schema([pa.field(each.name, each.type) for each in COLUMNS])


def frame(trajectories: Iterable[Trajectory], library: FrameLibrary | None = None) -> Any:
    """Return a `pandas.DataFrame` or a `polars.DataFrame` with one row per trajectory.

    Without `library`, the one that is imported is used, or else one that is installed, and pandas
    before polars. Tokens, texts and patches are not in it: memory grows by some 300 bytes per
    episode. Raises PrerequisiteError if neither is installed, UsageError for another name.
    """
    chosen = choose_library(library)
    found = table(trajectories)
    return found.to_pandas() if chosen == "pandas" else import_module("polars").from_arrow(found)


def table(trajectories: Iterable[Trajectory]) -> pa.Table:
    """Return the frame as an Arrow table."""
    records = iter(trajectories)
    batches = []
    while some := list(islice(records, _BATCH)):
        columns = [pa.array([each.value(t) for t in some], each.type) for each in COLUMNS]
        batches.append(pa.record_batch(columns, schema=SCHEMA))
    return pa.Table.from_batches(batches, schema=SCHEMA)


def choose_library(wanted: str | None) -> FrameLibrary:
    """Return the library to use; raises PrerequisiteError and UsageError as `frame` does."""
    if wanted is not None and wanted not in LIBRARIES:
        raise UsageError(
            f"{wanted!r} is no library of data frames that is known here",
            fix='frame("pandas") or frame("polars"); export writes Parquet for others',
        )
    allowed = [each for each in LIBRARIES if wanted in (None, each)]
    for library in allowed:
        if library in sys.modules:
            return library
    for library in allowed:
        if find_spec(library) is not None:
            return library
    raise PrerequisiteError(
        f"{wanted or 'no library of data frames'} is {'not ' if wanted else ''}installed",
        why="a frame is one of pandas or of polars; swe-rollout needs neither",
        fix=f"pip install {wanted}" if wanted else "pip install pandas, or: pip install polars",
    )


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
