"""An episode's time as a page: nothing in it runs or loads, whatever names say (F3)."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from swe_rollout.types.episode import Timing
from swe_rollout.types.turn import CallStatus, ToolCall
from swe_rollout.viewer import timeline
from swe_rollout.viewer.timeline import PAGES, PICTURES, timeline_page, timeline_picture
from unit.export.export_parts import trajectory
from unit.viewer.records import HOSTILE, Reader


def test_every_event_is_a_bar_with_its_name_and_time() -> None:
    page = Reader(timeline_page(trajectory()))
    assert page.tags.count("rect") == 12
    words = " ".join(page.words)
    assert "turn 1: 5 tokens: 1 s (stop)" in words
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
    ((path, data),) = PAGES.folder().files(trajectory("b", 2))
    assert path == "b/2.html"
    assert data == PAGES.file().part(trajectory("b", 2))


def test_a_picture_has_bars_an_axis_and_names_of_rows_and_colours() -> None:
    picture = ET.fromstring(timeline_picture(trajectory()))  # noqa: S314 - ours
    told = [each.text or "" for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert told[0].startswith("demo/a/0 · finished · in all 12 s")
    assert told[1:6] == ["episode", "phases", "turns", "generations", "calls"]
    assert [each for each in told if each.endswith(" s") and len(each) < 5] == [
        *("0 s", "2 s", "4 s", "6 s", "8 s", "10 s", "12 s")
    ]
    assert "llm_call: 3, 3 s, longest 1 s" in told


@pytest.mark.parametrize("total_s", [0.0, 1e-9, 1e9])
def test_a_picture_of_anything_is_xml_that_loads_and_runs_nothing(total_s: float) -> None:
    hostile = f"{HOSTILE}\ufffe\uffff\ud800]]>&#0;<!--"
    found = replace(trajectory(), timing=Timing(total_s=total_s), policy=hostile)
    call = ToolCall(CallStatus.OK, "", hostile, {"command": hostile})
    found = replace(found, turns=(replace(found.turns[0], tool_calls=(call, call)),))
    ((path, data),) = PICTURES.folder().files(found)

    picture = ET.fromstring(data)  # noqa: S314 - ours
    tags = {each.tag.rpartition("}")[2] for each in picture.iter()}
    assert path == "a/0.svg"
    assert tags == {"svg", "g", "rect", "text", "line", "title"}
    assert not [name for each in picture.iter() for name in each.attrib if name.startswith("on")]
