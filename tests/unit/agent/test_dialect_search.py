"""Formats of calls in the words of a turn: what a template tells its model is what counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.agent.call_text import EXAMPLE, WRITABLE, write_calls
from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.tool_format import ToolFormat
from unit.agent.test_template_probe import BEGIN, TEMPLATE, TOLD, TURNS, exact, loaded

pytestmark = pytest.mark.threat(point=15)

ODD = "{% for c in m.tool_calls %}{{ c.function.name }}!{{ c.function.arguments }}{% endfor %}"
TELLS = {
    ToolFormat.FUNCTOOLS: 'Calls are formatted as functools[{"name": …}].',
    ToolFormat.COMMAND_R: "Write 'Action:' followed by a json-formatted list of actions.",
    ToolFormat.HERMES: "Put calls into <tool_call> tags.",
}


def telling(text: str) -> str:
    """A template that tells one format, and writes earlier calls in another that none reads."""
    return TOLD.replace("tool {{", text + " {{") + TURNS.replace("CALLS", ODD) + BEGIN


@pytest.mark.parametrize("form", TELLS)
def test_calls_that_no_parser_reads_are_written_as_the_template_tells_its_model(
    form: ToolFormat, tmp_path: Path
) -> None:
    renderer = exact(telling(TELLS[form]), tmp_path)

    assert renderer.tool_format == form
    assert renderer.grammar.dialect.calls_in_words == form
    assert renderer.grammar.dialect.writes_tools


def test_a_token_of_the_vocabulary_tells_nothing_where_calls_are_written_otherwise(
    tmp_path: Path,
) -> None:
    # <tool_call> is a token here, but the template neither writes it nor tells of it.
    source = telling("Call") + "{% if not messages %}<tool_call>{% endif %}"

    with pytest.raises(PrerequisiteError, match="no known format"):
        loaded(source, tmp_path)


def test_a_format_that_the_job_names_is_not_replaced_by_one_that_is_told(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="does not fit the format of calls react"):
        loaded(telling(TELLS[ToolFormat.FUNCTOOLS]), tmp_path, form=ToolFormat.REACT)


def test_a_turn_with_calls_may_need_an_empty_content(tmp_path: Path) -> None:
    source = TEMPLATE.replace(
        "{% if m.tool_calls %}",
        "{% if m.tool_calls and m.content is not string %}{{ raise_exception('no text') }}"
        "{% endif %}{% if m.tool_calls and m.content %}{{ raise_exception('words') }}{% endif %}"
        "{% if m.tool_calls %}",
    )
    dialect = exact(source, tmp_path).grammar.dialect

    assert not dialect.speaks_with_calls
    assert dialect.silent_content == ""
    assert dialect.calls_in_words is None


@pytest.mark.parametrize("form", sorted(WRITABLE))
def test_an_example_call_is_written_in_every_format_for_words(form: str) -> None:
    written = write_calls(form, [EXAMPLE])
    assert "TOOL" in written
    assert "KEY" in written
