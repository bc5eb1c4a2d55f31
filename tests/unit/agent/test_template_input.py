"""What a template is given: bare tools, contents as parts, and the date of the job."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import jinja2
import pytest

from swe_rollout.agent.template_input import TemplateInput, find_input, pinned_to
from unit.agent.test_template_probe import TEMPLATE, delta, exact, prompt

pytestmark = pytest.mark.threat(point=15)

BARE = TEMPLATE.replace("tool {{ t | tojson }}", "tool {{ t.name + ': ' + t.description }}")
PARTS = TEMPLATE.replace(
    "{{ m.content or '' }}",
    "{% for part in m.content or [] if part.type == 'text' %}{{ part.text }}{% endfor %}",
)


def test_bare_tools(tmp_path: Path) -> None:
    renderer = exact(BARE, tmp_path)
    assert "<|start|>tool bash: " in prompt(renderer)


def test_contents_as_parts(tmp_path: Path) -> None:
    renderer = exact(PARTS, tmp_path)
    assert "<|start|>user: Fix it.<|stop|>" in prompt(renderer)
    assert delta(renderer, "r") == "<|start|>tool: r<|stop|><|start|>assistant: "


def test_the_usual_form_comes_first_and_last() -> None:
    def renders_all(messages: list[dict[str, object]], tools: list[dict[str, object]]) -> str:
        return f"{messages} {tools}"

    def renders_nothing(messages: list[dict[str, object]], tools: list[dict[str, object]]) -> str:
        raise ValueError(len(messages) + len(tools))

    assert find_input(renders_all, (ValueError,)) == TemplateInput()
    assert find_input(renders_nothing, (ValueError,)) == TemplateInput()


def test_a_content_that_is_none_stays_none() -> None:
    message: dict[str, object] = {"role": "assistant", "content": None}
    assert TemplateInput(content_parts=True).conversation([message]) == [message]


DAY = date(2025, 3, 9)
ASKING = "  {% if strftime_now is defined %}{{ strftime_now('%d %b %Y, %-d %B, %A') }}{% endif %}\n"


def rendered(source: str) -> str:
    pinned = pinned_to(DAY, source).get("chat_template", source)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # noqa: S701 - no HTML
    return environment.from_string(str(pinned)).render()


@pytest.mark.threat(point=14)
def test_a_template_is_told_the_day_of_the_job() -> None:
    assert rendered(ASKING).strip() == "09 Mar 2025, 9 March, Sunday"


@pytest.mark.threat(point=14)
def test_the_format_may_be_a_variable_and_the_name_of_another() -> None:
    source = "{% set form = '%Y-%m-%d' %}{% set now = strftime_now %}{{ now(form) }}"
    assert rendered(source) == "2025-03-09"


def test_the_rest_of_a_template_is_rendered_as_before() -> None:
    for source in ("  {% if true %}x{% endif %}\n y", "\n\n{{ 1 }}", "a {# b #}\nc"):
        assert rendered(source + "{# strftime_now #}") == rendered(source + "{# never #}")


def test_a_template_that_asks_no_clock_stays_as_it_is() -> None:
    assert pinned_to(DAY, "{{ messages }}") == {}
    assert pinned_to(DAY, None) == {}


def test_of_several_templates_the_one_for_tools_is_pinned() -> None:
    found = pinned_to(DAY, {"default": "x", "tool_use": "{{ strftime_now('%Y') }}"})
    assert rendered(str(found["chat_template"])) == "2025"
