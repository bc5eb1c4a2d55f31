"""Templates that take bare tools, or contents as lists of parts, get them so."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.agent.template_input import TemplateInput, find_input
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
