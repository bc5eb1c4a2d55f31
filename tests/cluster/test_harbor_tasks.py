"""A Harbor task over pods: its oracle resolves it, an untouched base does not."""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster.needs import BASE, CLUSTER
from cluster.pods import pods, provided
from harbor_parts import TASKS
from swe_rollout.datasets.harbor_task import load
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.validate import validate
from swe_rollout.types.instance import Instance

pytestmark = CLUSTER


async def test_the_oracle_resolves_it(tmp_path: Path) -> None:
    task = Path(shutil.copytree(TASKS / "stock-report", tmp_path / "stock-report"))
    config = (task / "task.toml").read_text()
    config = config.replace("swe-rollout/stock-report:1", BASE).replace('"/app"', '"/root"')
    (task / "task.toml").write_text(config)
    (instance,) = await load(str(task), base_dir=tmp_path)
    assert isinstance(instance, Instance)
    async with provided(pods()) as provider:
        result = await validate(instance, Grader(provider))
    assert result.problem == ""
    assert result.gold.scores == {"reward": 1.0, "report": 1.0, "folder": 1.0}
    assert result.empty.scores["reward"] == 0.0
