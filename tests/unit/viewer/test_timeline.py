"""An episode's time as a page: nothing in it runs or loads, whatever names say (F3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swe_rollout.types.episode import Timing
from swe_rollout.types.turn import CallStatus, ToolCall
from swe_rollout.viewer import timeline
from swe_rollout.viewer.timeline import timeline_file, timeline_folder, timeline_page
from unit.export.export_parts import trajectory
from unit.viewer.records import HOSTILE, Reader


def test_every_event_is_a_bar_with_its_name_and_time() -> None:
    page = Reader(timeline_page(trajectory()))
    assert page.tags.count("rect") == 12
    words = " ".join(page.words)
    assert "turn 1: 5 tokens: 1.0000 s (stop)" in words
    assert "sandbox start and preparation" in words
    assert "earliest possible" in words


def test_a_hostile_name_becomes_no_markup() -> None:
    found = trajectory()
    call = ToolCall(CallStatus.OK, "", HOSTILE, {"command": HOSTILE})
    turn = replace(found.turns[0], tool_calls=(call, call))
    page = timeline_page(replace(found, turns=(turn,), policy=HOSTILE))
    read = Reader(page)
    assert "script" not in read.tags
    assert "img" not in read.tags
    assert not any(name.startswith("on") for name in read.attributes)
    assert not set("\x00\x1b\x07") & set(page)


def test_the_page_runs_and_loads_nothing() -> None:
    page = timeline_page(trajectory())
    assert "default-src 'none'" in page
    assert "script-src" not in page
    assert Reader(page).links == ["#zoom-1", "#zoom-4", "#zoom-16", "#zoom-64"]
    assert set(Reader(page).ids) == {link[1:] for link in Reader(page).links}


@pytest.mark.parametrize("total_s", [0.0, 1e-9, 1e9])
def test_any_length_of_an_episode_is_drawn(total_s: float) -> None:
    page = Reader(timeline_page(replace(trajectory(), timing=Timing(total_s=total_s))))
    assert page.tags.count("rect") >= 10


def test_an_episode_of_too_many_events_is_drawn_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_EVENTS", 4)
    page = Reader(timeline_page(trajectory()))
    assert page.tags.count("rect") == 4
    assert "8 further events" in " ".join(page.words)


def test_a_job_is_a_folder_of_pages() -> None:
    ((path, data),) = timeline_folder().files(trajectory("b", 2))
    assert path == "b/2.html"
    assert data == timeline_file().part(trajectory("b", 2))
