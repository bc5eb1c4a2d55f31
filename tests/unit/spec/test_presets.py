"""Presets fill what a job leaves open, in the spec itself."""

from __future__ import annotations

import pytest

from swe_rollout.errors import SpecError
from swe_rollout.spec.agent import PRESETS, AgentSpec, ToolUse
from swe_rollout.spec.job import RolloutJob
from unit.spec.spec_parts import GOOD, parsed, problems


def job(agent: str = "", *overrides: str) -> RolloutJob:
    return parsed(f"{GOOD}  agent: {agent}\n" if agent else GOOD, *overrides)


def test_an_agent_is_named_alone_and_brings_its_defaults() -> None:
    found = job("{use: swe}").spec.agent

    assert (found.tool_format, found.system_prompt) == (
        "function_xml",
        PRESETS["swe"].system_prompt,
    )
    assert found.instance_prompt == PRESETS["swe"].instance_prompt


def test_explicit_fields_win() -> None:
    found = job("{use: swe, toolFormat: auto, tools: [bash], systemPrompt: ''}").spec.agent

    assert (found.tool_format, found.tools) == ("auto", (ToolUse(use="bash"),))
    assert found.system_prompt == ""
    assert found.instance_prompt == PRESETS["swe"].instance_prompt


def test_an_override_of_the_agent_brings_its_defaults_too() -> None:
    assert job("{with: {}}", "spec.agent.use=react").spec.agent.tool_format == "thought_action"


@pytest.mark.parametrize("name", PRESETS)
def test_the_resolved_job_says_all_and_stays_the_same(name: str) -> None:
    """Workers on a cluster get this document, and render what this process would."""
    first = job(f"{{use: {name}}}")
    again = RolloutJob.model_validate(first.to_yaml_dict())

    assert again.spec.agent == first.spec.agent
    assert again.digest == first.digest


def test_an_agent_of_a_users_own_has_the_defaults_of_the_loop() -> None:
    mine = AgentSpec(use="my_agents:planner")

    assert mine.model_copy(update={"use": "loop"}) == AgentSpec()


def test_jobs_without_a_preset_keep_their_digest() -> None:
    """A store of an earlier version takes the same job again."""
    assert job().comparable()["agent"] == {
        "toolFormat": "auto",
        "tools": ["bash", "str_replace_editor", "submit"],
        "systemPrompt": None,
        "instancePrompt": None,
    }


def test_a_wrong_agent_is_one_problem() -> None:
    assert len(problems(f"{GOOD}  agent: {{use: 5}}\n")) == 1


@pytest.mark.parametrize("name", ["a b", "", "1x", "ä"])
def test_variables_have_names(name: str) -> None:
    with pytest.raises(SpecError, match=r"agent\.promptVariables"):
        job(f'{{promptVariables: {{"{name}": x}}}}')
