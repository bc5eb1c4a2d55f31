"""Every built-in parser probe, as text, and mutations of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout_dev.parser_probes.probe_files import load_probes
from rollout_dev.parser_probes.probes import ParserProbe, run_probe
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus

PROBES = load_probes()


@pytest.mark.threat(point=14)
@pytest.mark.parametrize("form", ToolFormat)
def test_the_parser_finds_the_expected_calls_and_says_why_others_do_not_run(
    form: ToolFormat,
) -> None:
    for probe in (each for each in PROBES if each.tool_format is form):
        calls = run_probe(probe)
        found = [(call.status.value, call.name, call.arguments, call.id) for call in calls]
        assert probe.passes(calls), f"{probe.name}: {probe.text!r} gave {found}"
        for call in calls:
            is_ok = call.status is CallStatus.OK
            assert bool(call.problem) != is_ok, probe.name
            assert is_ok or not call.arguments, probe.name


@pytest.mark.parametrize("tool_format", ToolFormat)
def test_every_format_has_probes_of_what_runs_and_of_what_does_not(
    tool_format: ToolFormat,
) -> None:
    expected = [
        s for p in PROBES if p.tool_format is tool_format for e in p.expect for s in e.statuses
    ]
    assert len(expected) > 10
    assert CallStatus.OK in expected
    assert CallStatus.UNKNOWN_TOOL in expected
    assert {CallStatus.INVALID_JSON, CallStatus.MALFORMED} & set(expected)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PROBES), st.data())
def test_no_mutation_of_a_turn_breaks_a_parser(probe: ParserProbe, data: st.DataObject) -> None:
    text = probe.text
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    change = data.draw(st.sampled_from(["", "<", "{", '"', "\n", "</tool_call>", text[end:], "\0"]))
    opened = data.draw(st.booleans())
    sampled = SampledText(text[:start] + change + text[end:], ())

    calls = parser_for(probe.tool_format).parse(
        sampled, tools=probe.tools, reasoning=Reasoning(opened=opened)
    )
    for call in calls:
        assert call.raw in sampled.text
        assert call.status is not CallStatus.OK or call.name in {t.name for t in probe.tools}


# What a tag behind it refuses is whole where the turn is cut before that tag.
CUT = [p for p in PROBES if any(e.runs for e in p.expect) and "a closing tag behind" not in p.name]


@pytest.mark.parametrize("form", ToolFormat)
def test_a_turn_cut_anywhere_runs_only_whole_calls(form: ToolFormat) -> None:
    parser = parser_for(form)
    for probe in CUT:
        if probe.tool_format is not form:
            continue
        whole = [call.arguments for call in run_probe(probe) if call.status is CallStatus.OK]
        for end in range(len(probe.text)):
            cut = SampledText(probe.text[:end], ())
            for call in parser.parse(cut, tools=probe.tools, reasoning=probe.reasoning):
                assert call.status is not CallStatus.OK or call.arguments in whole, cut.text
