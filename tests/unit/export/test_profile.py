"""Profiles: measured durations, nothing invented, Chrome's trace format (F1, WE7)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.export.files import export
from swe_rollout.export.profile import (
    EventType,
    chrome_trace_format,
    events,
    summary,
    unaccounted_s,
)
from swe_rollout.tokens.branch import Branch, BranchKind
from swe_rollout.types.episode import Timing
from unit.export.export_parts import failed, stream, trajectory


def test_events_are_the_phases_turns_and_calls_of_the_record() -> None:
    found = list(events(trajectory()))
    assert [(each.type.value, each.start_s, each.duration_s) for each in found] == [
        ("instance_processing", 0.0, 12.0),
        ("pod_creation", 0.0, 2.0),
        ("trajectory_step", 2.0, 1.5),
        ("llm_call", 2.0, 1.0),
        ("bash_command", 3.0, 0.25),
        ("bash_command", 3.25, 0.25),
        ("trajectory_step", 3.5, 1.5),
        ("llm_call", 3.5, 1.0),
        ("tool_execution", 4.5, 0.25),
        ("trajectory_step", 5.0, 1.5),
        ("llm_call", 5.0, 1.0),
        ("custom", 8.0, 4.0),
    ]
    assert unaccounted_s(trajectory()) == pytest.approx(1.5)


def test_only_starts_that_the_record_holds_count_as_exact() -> None:
    found = events(trajectory())
    exact = {each.type for each in found if each.start_is_exact}
    assert exact == {EventType.INSTANCE_PROCESSING, EventType.POD_CREATION, EventType.CUSTOM}


def test_every_event_lies_in_one_that_came_before() -> None:
    found = {each.id: each for each in events(trajectory())}
    assert len(found) == 12
    for each in found.values():
        assert each.parent is None or found[each.parent].id < each.id


def test_an_episode_that_never_started_has_one_event() -> None:
    never = replace(failed(trajectory()), turns=(), timing=Timing(total_s=1.0))
    assert [each.detail for each in events(never)] == ["failed"]


def test_sums_are_by_type_the_longest_first() -> None:
    sums = summary(events(trajectory()))
    assert next(iter(sums)) is EventType.INSTANCE_PROCESSING
    assert (sums[EventType.LLM_CALL].count, sums[EventType.LLM_CALL].total_s) == (3, 3.0)
    assert sums[EventType.BASH_COMMAND].longest_s == 0.25


async def test_a_trace_has_a_process_for_each_episode(tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    await export(stream(trajectory("a"), trajectory("b")), out, chrome_trace_format())
    trace = json.loads(out.read_bytes())
    assert "earliest possible" in trace["otherData"]["starts"]
    spans = [each for each in trace["traceEvents"] if each["ph"] == "X"]
    assert len(spans) == 24
    assert {each["pid"] for each in spans} == {1, 2}
    names = [
        each["args"]["name"] for each in trace["traceEvents"] if each["name"] == "process_name"
    ]
    assert names == ["demo/a/0", "demo/b/0"]
    first = min(each["ts"] for each in spans)
    assert first == pytest.approx((1767323045.678 - 12.0) * 1e6, abs=1e3)


@given(st.text(max_size=40))
def test_any_time_of_an_end_makes_a_trace(finished_at: str) -> None:
    form = chrome_trace_format()
    part = form.part(replace(trajectory(), finished_at=finished_at))
    assert len(json.loads(b"[" + part + b"]")) == 15


def branch(index: int, kind: BranchKind, parent: int) -> Branch:
    return Branch(index, kind, parent, 0, (), (), (), ())


def test_a_sub_agents_turns_lie_within_its_parents_call_and_a_restart_follows() -> None:
    """The parent's call lasts as long as the sub-agent: its time counts once."""
    played = trajectory()
    first, second, last = played.turns
    asks = replace(first, engine_s=1.0, tools_s=3.0)
    nested = replace(second, branch=1, engine_s=0.5, tools_s=0.5)
    restart = replace(last, branch=2, engine_s=1.0, tools_s=0.0)
    found = replace(
        played,
        turns=(asks, nested, restart),
        branches=(branch(1, BranchKind.SUB_AGENT, 0), branch(2, BranchKind.RESTART, 0)),
    )
    starts = {
        each.branch: each.start_s
        for each in events(found)
        if each.type is EventType.TRAJECTORY_STEP
    }
    assert starts == {0: 2.0, 1: 3.0, 2: 6.0}
    assert unaccounted_s(found) == pytest.approx(12.0 - 2.0 - 4.0 - 5.0)


SECONDS = st.floats(0, 1e5, allow_nan=False)


@given(data=st.data())
def test_a_trace_is_one_that_perfetto_draws(data: st.DataObject) -> None:
    """Complete events with whole microseconds; in each thread they nest or follow each other."""
    played = trajectory()
    kinds = st.sampled_from([BranchKind.SUB_AGENT, BranchKind.RESTART])
    turns = tuple(
        replace(
            turn,
            branch=data.draw(st.integers(0, 2)),
            engine_s=data.draw(SECONDS),
            tools_s=data.draw(SECONDS),
            observations=tuple(
                replace(seen, duration_s=data.draw(SECONDS)) for seen in turn.observations
            ),
        )
        for turn in played.turns
    )
    timing = Timing(
        start_s=data.draw(SECONDS), grade_s=data.draw(SECONDS), total_s=data.draw(SECONDS)
    )
    branches = tuple(branch(index, data.draw(kinds), 0) for index in (1, 2))
    found = replace(played, turns=turns, timing=timing, branches=branches)
    text = b"[" + chrome_trace_format().part(found) + b"]"
    trace = json.loads(text)
    threads: dict[int, list[tuple[int, int]]] = {}
    named = {each["tid"] for each in trace if each["name"] == "thread_name"}
    for each in (event for event in trace if event["ph"] != "M"):
        assert each["ph"] == "X"
        assert {"name", "cat", "pid", "tid", "ts", "dur", "args"} <= each.keys()
        assert isinstance(each["ts"], int)
        assert isinstance(each["dur"], int)
        assert each["dur"] >= 0
        assert each["tid"] in named
        threads.setdefault(each["tid"], []).append((each["ts"], each["ts"] + each["dur"]))
    for spans in threads.values():
        open_ends: list[int] = []
        # Viewers sort by start, the longer one first.
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)
