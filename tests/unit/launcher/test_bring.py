"""Extensions passed as objects become names in the spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout import RewardInput, RolloutJob, Sandbox, StopReason, tool
from swe_rollout.agent.context import AgentContext
from swe_rollout.errors import UsageError
from swe_rollout.extension import ExtensionError
from swe_rollout.launcher.bring import require_shippable
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.grading import RewardUse
from swe_rollout.types.instance import Instance


def tasks() -> list[Instance]:
    return []


def half(given: RewardInput) -> float:  # noqa: ARG001 - a term's signature
    return 0.5


async def impatient(context: AgentContext) -> StopReason:  # noqa: ARG001 - a program's signature
    return StopReason.FINISHED


@tool
async def count_lines(sandbox: Sandbox, path: str) -> str:
    """Count the lines of a file.

    Args:
        path: The file.
    """
    return str((await sandbox.read_file(path)).count(b"\n"))


def test_objects_are_named_where_any_process_finds_them(job_file: Path) -> None:
    job = RolloutJob.from_yaml(
        job_file,
        agent=impatient,
        dataset=tasks,
        reward=["resolved", half],
        sandbox=LocalProvider,
        tools=[count_lines],
        log_parser="pytest",
    )

    spec, here = job.spec, tasks.__module__
    assert spec.agent.use == f"{here}:impatient"
    assert [each.use for each in spec.agent.tools][-1] == f"{here}:count_lines"
    assert len(spec.agent.tools) == 4
    assert spec.dataset.source is not None
    assert spec.dataset.source.use == f"{here}:tasks"
    assert [each.use for each in spec.grading.reward] == ["resolved", f"{here}:half"]
    assert spec.sandbox.backend is not None
    assert spec.sandbox.local is None
    require_shippable(job)


def test_a_term_may_come_with_a_weight(job_file: Path) -> None:
    term = RewardUse(use="resolved", weight=2.0)

    job = RolloutJob.from_yaml(job_file, reward=term)

    assert job.spec.grading.reward == (term,)
    assert job.digest != RolloutJob.from_yaml(job_file).digest


def test_what_only_this_process_knows_is_not_launched(job_file: Path) -> None:
    def local_term(given: RewardInput) -> float:
        return half(given)

    job = RolloutJob.from_yaml(job_file, reward=local_term)

    assert job.spec.grading.reward == (RewardUse(use="local_term"),)
    with pytest.raises(UsageError, match="the reward term local_term exists in this process alone"):
        require_shippable(job)
    with pytest.raises(UsageError, match="in this process alone"):
        job.launch()


def test_a_second_object_of_one_name_is_refused(job_file: Path) -> None:
    def make(score: float) -> object:
        def twin(given: RewardInput) -> float:  # noqa: ARG001
            return score

        twin.__qualname__ = f"twin_{score}"
        return twin

    RolloutJob.from_yaml(job_file, reward=make(1.0))
    with pytest.raises(ExtensionError, match="already a reward term named twin"):
        RolloutJob.from_yaml(job_file, reward=make(2.0))


def test_an_unknown_argument_is_refused_and_none_is_no_argument(job_file: Path) -> None:
    plain = RolloutJob.from_yaml(job_file)

    assert RolloutJob.from_yaml(job_file, agent=None, reward=None, tools=()).digest == plain.digest
    with pytest.raises(TypeError, match="unexpected keyword argument 'tool'"):
        RolloutJob.from_yaml(job_file, tool=count_lines)  # type: ignore[call-arg]


def test_an_agent_by_name_brings_its_defaults(job_file: Path) -> None:
    found = RolloutJob.from_yaml(job_file, ["spec.agent.tools=[bash]"], agent="swe").spec.agent

    assert (found.use, found.tool_format) == ("swe", "function_xml")
    assert [tool.use for tool in found.tools] == ["bash"]
