"""What a job can't have together is refused before its first episode."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.agent.presets.rounds import Behind, Preset
from swe_rollout.agent.program import AGENTS
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.agent import AgentSpec
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.worker.assembly import _require_messages, _require_preset, prompts_of
from unit.agent.test_renderer_load import folder_with
from unit.agent.test_turn_probe import template


def test_compaction_needs_a_template_that_takes_messages_behind_results(tmp_path: Path) -> None:
    renderer = Renderer.load(folder_with(tmp_path / "model", template("alternates")))
    with pytest.raises(PrerequisiteError, match=r"compactAt can't be used .* alternate"):
        _require_messages(renderer)
    _require_messages(Renderer.load(str(tokenizer_path())))


@pytest.mark.parametrize("use", ["coding", "react"])
def test_a_preset_needs_a_template_that_takes_its_messages(use: str, tmp_path: Path) -> None:
    preset = AGENTS.load(use)
    assert isinstance(preset, Preset)
    refusing = Renderer.load(folder_with(tmp_path / "model", template("alternates")))
    _require_preset(preset, Renderer.load(str(tokenizer_path())), AgentSpec(use=use))
    if any(refusing.message_refusal(after_calls=each is Behind.CALLS) for each in preset.messages):
        with pytest.raises(PrerequisiteError, match=f"the agent {use} can't be used"):
            _require_preset(preset, refusing, AgentSpec(use=use))
    else:
        _require_preset(preset, refusing, AgentSpec(use=use))


def test_prompts_know_the_tools_and_the_variables_of_the_job() -> None:
    """P1, P2."""
    agent = AgentSpec(
        system_prompt="{tools} {team} {problem_statement}",
        instance_prompt="{team}: {problem_statement}",
        prompt_variables={"team": "{workdir}"},
    )
    first, task = prompts_of(agent, toolbox(["bash"]).specs).messages("{team}", "/testbed")

    assert first.content.startswith("- bash: ")
    assert first.content.endswith(" {workdir} {problem_statement}")
    assert task.content == "{workdir}: {team}"


def test_prompts_in_a_file_that_nobody_read_are_refused() -> None:
    with pytest.raises(PrerequisiteError, match="are not here"):
        prompts_of(AgentSpec(prompts_file="p.yaml"), ())
