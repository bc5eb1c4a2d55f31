"""The contract of dataset sources as tests: subclass `DatasetContract` and provide a source.

    class TestMyTasks(DatasetContract):
        @pytest.fixture
        def source(self):
            return partial(my_tasks.from_issues, path="issues.json")

Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from swe_rollout.datasets import DatasetSource
from swe_rollout.datasets.source import NamedSource
from swe_rollout.errors import Problem
from swe_rollout.grading.parsers import load_parser
from swe_rollout.grading.program import program
from swe_rollout.types.instance import Instance


class DatasetContract:
    """The contract of a dataset source. Override the fixture `source`."""

    has_gold_patches: ClassVar[bool] = True
    """False if the tasks have no reference fix, which `swe-rollout validate` needs."""

    @pytest.fixture
    def source(self) -> DatasetSource:
        """The dataset source with its parameters bound."""
        raise NotImplementedError("override the fixture `source`")

    @pytest.fixture
    def base_dir(self, tmp_path: Path) -> Path:
        """The folder at which the source's relative paths start."""
        return tmp_path

    @pytest.fixture
    async def instances(self, source: DatasetSource, base_dir: Path) -> tuple[Instance, ...]:
        """The usable tasks."""
        return await _instances(source, base_dir)

    async def test_gives_tasks(self, instances: tuple[Instance, ...]) -> None:
        assert instances

    async def test_gives_the_same_tasks_in_the_same_order_each_time(
        self, instances: tuple[Instance, ...], source: DatasetSource, base_dir: Path
    ) -> None:
        # Each worker of a job on a cluster loads the dataset itself and takes its shard of it.
        assert await _instances(source, base_dir) == instances

    async def test_every_task_can_be_graded(self, instances: tuple[Instance, ...]) -> None:
        for instance in instances:
            assert program(instance.evaluation), instance.instance_id
            assert load_parser(instance.log_parser)
            assert instance.expected.fail_to_pass, f"{instance.instance_id} has no test to repair"

    async def test_every_task_has_a_reference_fix(self, instances: tuple[Instance, ...]) -> None:
        for instance in instances:
            assert instance.gold_patch.strip() or not self.has_gold_patches, instance.instance_id

    async def test_the_problem_does_not_show_its_solution(
        self, instances: tuple[Instance, ...]
    ) -> None:
        for instance in instances:
            for patch in (instance.gold_patch.strip(), instance.test_patch.strip()):
                assert not patch or patch not in instance.problem_statement, instance.instance_id


async def _instances(source: DatasetSource, base_dir: Path) -> tuple[Instance, ...]:
    found = await NamedSource("under test", source).read(
        base_dir=base_dir, on_progress=lambda _: None
    )
    problems = [str(each) for each in found if isinstance(each, Problem)]
    assert not problems, "\n".join(problems)
    return tuple(each for each in found if not isinstance(each, Problem))
