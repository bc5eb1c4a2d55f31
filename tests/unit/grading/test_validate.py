"""A whole dataset is validated: in its order, each result reported as it is ready."""

from __future__ import annotations

import asyncio

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.extension import ExtensionError
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.proof import Proof
from swe_rollout.grading.validate import Validation, validate_dataset
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import TestReport, Verdict, VerdictStatus

TASKS = tuple(
    Instance(instance_id=name, problem_statement="fix it", image="image:1", gold_patch="-a\n+b\n")
    for name in ("slow", "quick", "broken")
)


class Fake(Grader):
    """Grades the gold patch as resolved; that of the slow task once its gate is open."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]  # starts no sandbox
        self.gate = asyncio.Event()
        self.gate.set()

    async def grade(
        self, instance: Instance, patch: Patch, *, episode: EpisodeId, attempt: int = 1
    ) -> Verdict:
        del patch, episode, attempt
        if instance.instance_id == "slow":
            await self.gate.wait()
        if instance.instance_id == "broken":
            raise SandboxError("no room")
        return Verdict(VerdictStatus.RESOLVED, TestReport({}, {}))

    async def prove(self, instance: Instance, *, episode: EpisodeId) -> Proof:
        del instance, episode
        return Proof()

    async def grade_base(
        self, instance: Instance, *, episode: EpisodeId, attempt: int = 1
    ) -> Verdict:
        del instance, episode, attempt
        return Verdict(VerdictStatus.UNRESOLVED, TestReport({}, {}))

    async def find_copies(self, instance: Instance, *, episode: EpisodeId) -> tuple[str, ...]:
        del episode
        return ("/cache/fixed.py",) if instance.instance_id == "quick" else ()


async def test_results_come_in_the_datasets_order_and_are_reported_when_ready() -> None:
    ready, fake = list[str](), Fake()
    fake.gate.clear()

    def report(each: Validation) -> None:
        ready.append(each.instance_id)
        fake.gate.set()

    results = await validate_dataset(TASKS[:2], fake, parallelism=2, on_result=report)
    assert [each.instance_id for each in results] == ["slow", "quick"]
    assert ready == ["quick", "slow"]
    assert [each.copies for each in results] == [(), ("/cache/fixed.py",)]
    assert [each.problem for each in results] == ["", "the image holds the fix: /cache/fixed.py"]


async def test_a_sandbox_that_breaks_says_nothing_about_the_task() -> None:
    with pytest.raises(SandboxError):
        await validate_dataset(TASKS, Fake(), parallelism=1, on_result=lambda _: None)


async def test_a_missing_log_parser_is_found_first() -> None:
    task = Instance(instance_id="x", problem_statement="fix it", image="i", log_parser="none")
    with pytest.raises(ExtensionError):
        await validate_dataset(
            [*TASKS, task], Fake(), parallelism=1, on_result=lambda each: pytest.fail(str(each))
        )
