"""A file of prompts is read where the job file is, and stands in the job from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.errors import SpecError
from swe_rollout.spec.agent import PRESETS, AgentSpec
from swe_rollout.spec.load import load_job
from unit.spec.spec_parts import GOOD


def agent(folder: Path, prompts: str | bytes, fields: str = "", name: str = "p.yaml") -> AgentSpec:
    data = prompts.encode() if isinstance(prompts, str) else prompts
    (folder / name).write_bytes(data)
    path = folder / "job.yaml"
    path.write_text(f"{GOOD}  agent: {{promptsFile: {name}, {fields}}}\n")
    return load_job(path).spec.agent


def test_both_prompts_come_from_the_file(tmp_path: Path) -> None:
    """P2."""
    found = agent(tmp_path, "systemPrompt: Be brief.\ninstancePrompt: |\n  {problem_statement}\n")

    assert (found.system_prompt, found.instance_prompt) == ("Be brief.", "{problem_statement}\n")
    assert found.prompts_file is None


def test_what_the_job_says_wins_over_the_file_and_the_file_over_the_preset(tmp_path: Path) -> None:
    texts = "systemPrompt: a\ninstancePrompt: b\n"
    found = agent(tmp_path, texts, fields="use: swe, systemPrompt: mine")
    partly = agent(tmp_path, "systemPrompt: a\n", fields="use: swe")

    assert (found.system_prompt, found.instance_prompt) == ("mine", "b")
    assert (partly.system_prompt, partly.instance_prompt) == ("a", PRESETS["swe"].instance_prompt)


def test_a_text_is_the_system_prompt(tmp_path: Path) -> None:
    assert agent(tmp_path, "Be {brief}: x.\n", name="p.txt").system_prompt == "Be {brief}: x.\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("systemPromt: x\n", "systemPromt"),
        ("- a\n", "mapping"),
        ("a: [\n", "p.yaml"),
        (b"\xff\xfe", "not UTF-8"),
        ("systemPrompt: " + "x" * 70_000, "at most 65536"),
    ],
)
def test_a_file_without_prompts_is_refused(tmp_path: Path, text: str | bytes, why: str) -> None:
    with pytest.raises(SpecError) as caught:
        agent(tmp_path, text)
    assert why in str(caught.value)
