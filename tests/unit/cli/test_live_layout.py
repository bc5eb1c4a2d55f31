"""The lines of the live view: of fixed number, never too wide, whatever a job holds."""

from __future__ import annotations

import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from swe_rollout.cli.live_layout import draw
from swe_rollout.errors import Boundary
from swe_rollout.events import Phase
from swe_rollout.live.progress import LiveProgress, LiveTitle
from swe_rollout.live.snapshot import Count, Outcome, Snapshot
from swe_rollout.types.episode import Failure
from unit.cli.run_parts import FAILURE, ended, episode, turn

COUNTS = st.integers(0, 3) | st.integers(0, 10**12)
NAMES = (
    st.text(max_size=60)
    | st.text(alphabet="漢字テスト한국어😀👩‍👩‍👧", max_size=60)
    | st.sampled_from(
        ["\x1b[2J\x1b]0;owned\x07", "a\r\nb\tc", "\u202egnp.exe", "e" + "\u0301" * 500]
    )
)
SECONDS = st.none() | st.floats(0, 1e9)


@st.composite
def snapshots(draw_: st.DrawFn) -> Snapshot:
    """Snapshots of a cluster's job, with everything that others may have named."""
    named = st.lists(st.builds(Count, NAMES, COUNTS), max_size=8).map(tuple)
    outcomes = st.lists(st.builds(Outcome, NAMES, COUNTS, st.none() | st.floats(0, 1), NAMES))
    return draw_(
        st.builds(
            Snapshot,
            job=NAMES,
            about=st.lists(NAMES, max_size=3).map(tuple),
            elapsed_s=st.floats(0, 1e9),
            eta_s=SECONDS,
            total=COUNTS,
            committed=COUNTS,
            phases=named,
            failed=COUNTS,
            retries=COUNTS,
            resolved=COUNTS,
            graded=COUNTS,
            mean_reward=st.none() | st.floats(-1e3, 1e3),
            episodes_per_min=SECONDS,
            verdicts=named,
            failures=named,
            outcomes=outcomes.map(tuple),
            records=st.none(),
            problem=NAMES,
            idle_s=SECONDS,
        )
    )


@given(found=snapshots(), width=st.integers(1, 220), height=st.integers(1, 60))
def test_lines_are_narrower_than_the_window_and_fewer_than_its_rows(
    found: Snapshot, width: int, height: int
) -> None:
    lines = draw(found, width=width, height=height)

    assert 1 <= len(lines) <= max(height - 1, 1)
    assert all(line.cell_len < max(width, 2) for line in lines)
    assert all(cell_len(line.plain) == line.cell_len for line in lines)


@given(found=snapshots(), other=snapshots(), width=st.integers(10, 220), height=st.integers(1, 60))
def test_the_number_of_lines_depends_on_the_window_alone(
    found: Snapshot, other: Snapshot, width: int, height: int
) -> None:
    one, two = (draw(each, width=width, height=height) for each in (found, other))
    assert len(one) == len(two)


@given(found=snapshots())
def test_nothing_in_a_name_is_obeyed(found: Snapshot) -> None:
    text = "\n".join(line.plain for line in draw(found, width=200, height=40))
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text) is None


def busy() -> LiveProgress:
    progress = LiveProgress(LiveTitle("rolloutjob/demo", ("sglang",), group_size=lambda _: 2))
    progress.planned(1000, 0)
    for sample in range(500):
        progress.phase(episode(sample), Phase.AGENT)
        progress.turn(episode(sample), turn(sample))
    for sample in range(0, 400, 2):
        progress.done(ended(sample, sample % 3 / 2))
    for n, boundary in enumerate(Boundary):
        failure = Failure(boundary, "X", "many\nlines " * 50, retryable=False)
        progress.done(ended(1000 + n, None, failure=failure))
    return progress


def test_the_height_is_the_same_at_the_start_and_in_the_middle() -> None:
    empty = LiveProgress(LiveTitle("demo", group_size=lambda _: 2)).snapshot()
    found = busy().snapshot()
    for height in (2, 5, 10, 15, 24, 60):
        heights = {
            len(draw(each, width=width, height=height))
            for each in (empty, found)
            for width in (40, 80, 200)
        }
        assert heights == {min(height - 1, 18)}


def drawn(progress: LiveProgress, *, width: int, height: int = 40) -> str:
    lines = draw(progress.snapshot(), width=width, height=height)
    return "\n".join(line.plain for line in lines)


def test_the_screen_shows_the_progress_of_a_job() -> None:
    progress = LiveProgress(LiveTitle("rolloutjob/demo", ("sglang",), group_size=lambda _: 2))
    progress.planned(10, 2)
    for sample in (8, 9):
        progress.earlier(ended(sample, 1.0, instance="earlier"))
    progress.phase(episode(0), Phase.AGENT)
    progress.phase(episode(1), Phase.GRADE)
    progress.turn(episode(0), turn(2.0))
    progress.done(ended(2, 1.0))
    progress.done(ended(3, 0.0))
    progress.done(ended(0, None, instance="click", failure=FAILURE))

    text = drawn(progress, width=140)

    for words in (
        *("rolloutjob/demo", "sglang", "5/10", "50%"),
        "queued 3  starting 0  running 1  grading 1  committed 5  failed 1",
        *("mean 0.75", "resolved 3/5", "1 with signal of 2 complete"),
        *("prefix-cache hit 50%", "engine 100% ██████████ tools 0%"),
        *("resolved 3 · unresolved 1", "failures  sandbox 1", "7 tokens sampled"),
        *("OUTCOME", "submitted", "sandbox_failed", "the pod␛[2J was evicted"),
    ):
        assert words in text


def test_what_matters_most_stays_in_a_small_window() -> None:
    lines = drawn(busy(), width=40, height=6).splitlines()

    assert [line.split()[0] for line in lines[1:]] == ["episodes", "phases", "reward", "groups"]
    assert lines[0].startswith("rolloutjob/demo")


def test_times_are_shown_however_long_the_name_is() -> None:
    progress = LiveProgress(LiveTitle("漢字" * 100))
    head = drawn(progress, width=40).splitlines()[0]
    assert head.endswith("0 s")
    assert "…" in head


def test_without_colours_nothing_is_coloured() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, no_color=True, width=100)
    console.print(*draw(busy().snapshot(), width=100, height=40), sep="\n")
    assert re.search(r"\x1b\[[0-9;]*3[0-7]", stream.getvalue()) is None
