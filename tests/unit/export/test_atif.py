"""ATIF documents, validated by the models of the package `atif`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from swe_rollout.errors import TaskError
from swe_rollout.export.atif import SCHEMA_VERSION, atif_format
from swe_rollout.types.trajectory import Trajectory
from unit.export.export_parts import branched, failed, reading, trajectory

atif = pytest.importorskip("atif", reason="pip install atif: the format's own models")


def document(found: Trajectory, *, system: str = "be good") -> dict[str, object]:
    ((path, data),) = atif_format(reading(system=system)).files(found)
    assert path == f"{found.episode.instance}/{found.episode.sample}/trajectory.json"
    atif.Trajectory.model_validate_json(data)
    value = json.loads(data)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("system", ["be good", ""])
def test_a_document_is_valid_and_holds_every_turn(system: str) -> None:
    model = atif.Trajectory.model_validate(document(trajectory("b", 3), system=system))
    assert model.schema_version == SCHEMA_VERSION
    assert model.agent.version == "1.2.3"
    agents = [step for step in model.steps if step.source == "agent"]
    assert [len(step.tool_calls or []) for step in agents] == [2, 0, 0]
    assert [result.content for result in agents[0].observation.results] == ["out 0", "out 1"]
    assert agents[0].message == "<think>hm</think>I look."
    assert agents[1].message == "<think>hm</think>I look.<call 1>"
    assert model.final_metrics.total_steps == len(model.steps)
    assert model.final_metrics.total_completion_tokens == 15


def test_metrics_hold_the_sampled_ids_and_their_logprobs() -> None:
    model = atif.Trajectory.model_validate(document(trajectory()))
    agents = [step for step in model.steps if step.source == "agent"]
    assert [step.metrics.completion_token_ids for step in agents] == [[7, 8, 9, 10, 11]] * 3
    assert [step.metrics.logprobs for step in agents] == [[-0.5] * 5] * 3
    assert [step.metrics.prompt_tokens for step in agents] == [20, 27, 34]


def test_each_branch_is_a_document_with_its_own_turns_and_what_was_said() -> None:
    found = branched()
    files = dict(atif_format(reading()).files(found))
    assert list(files) == ["a/0/trajectory.json", "a/0/branch-1.json"]
    main, other = (atif.Trajectory.model_validate_json(data) for data in files.values())
    assert [step.source for step in main.steps] == ["system", "user", "agent", "user", "agent"]
    assert main.steps[3].message == "and now?"
    assert [step.message for step in other.steps[:1]] == ["look into it"]
    assert other.trajectory_id == "demo/a/0#1"
    assert [s.metrics.completion_token_ids for s in other.steps[1:]] == [[7, 8, 9, 10, 11]]


def test_a_branch_without_a_prompt_as_text_is_left_out() -> None:
    with pytest.raises(TaskError, match="branch 1 has no prompt"):
        list(atif_format(reading()).files(replace(branched(), prompts=())))


def test_a_failed_episode_is_valid_and_says_so() -> None:
    extra = document(failed(trajectory()))["extra"]
    assert isinstance(extra, dict)
    assert (extra["failure"], extra["reward"]) == ("SandboxError", None)
