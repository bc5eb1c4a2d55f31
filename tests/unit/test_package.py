"""The public names of the package, and what is installed with it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

import swe_rollout
from checkout import ROOT
from swe_rollout.store.summary import JobSummary
from swe_rollout.types.verdict import TestReport, TestStatus, Verdict, VerdictStatus
from unit.store.records import trajectory


def test_the_package_imports_nothing_until_a_name_is_used() -> None:
    code = (
        "import sys; before = set(sys.modules); import swe_rollout; swe_rollout.__version__;"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before};"
        "print(*sorted(new - set(sys.stdlib_module_names)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["swe_rollout"]
    assert set(swe_rollout.__all__) <= {*dir(swe_rollout), "RolloutJob", "LaunchedJob"}
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = swe_rollout.Nothing


@pytest.mark.parametrize("name", swe_rollout.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(swe_rollout, name) is not None
    assert name in dir(swe_rollout)


@pytest.mark.threat(point=21)
def test_a_job_and_a_store_are_read_without_the_heavy_packages(tmp_path: Path) -> None:
    code = (
        "import sys; from swe_rollout import RolloutJob, open_store, read_trajectories;"
        "RolloutJob.from_yaml('examples/01-release-pairs/job.yaml');"
        f"from pathlib import Path; print(*open_store(Path({str(tmp_path)!r})).jobs());"
        "print(*{'transformers', 'kubernetes', 'aiohttp', 'pyarrow'} & set(sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert done.stdout.split() == []
    assert {"open_store", "read_trajectories", "StoredJob", "RunResult"} <= {*dir(swe_rollout)}


_TASK = swe_rollout.Instance(
    instance_id="demo__one-1",
    problem_statement="It\x1b[2J breaks.\n" * 99,
    image="i",
    gold_patch="SECRET",
)
_SHOWN = [
    _TASK,
    swe_rollout.EpisodeId("demo", "demo__one-1", 3),
    swe_rollout.Reward((swe_rollout.RewardTerm("resolved", 1.0),)),
    swe_rollout.RewardTerm("resolved", 1.0),
    Verdict(
        VerdictStatus.RESOLVED, TestReport({f"t::{n}": TestStatus.PASSED for n in range(999)}, {})
    ),
    trajectory(),
    swe_rollout.Group("demo/demo__one-1", 8, (trajectory(),) * 8),
    replace(trajectory(), token_ids=(7,) * 9999, patch="x" * 9999),
    JobSummary("demo", 2, 1, 1, 0, 0, 1.0, {"submitted": 1}, {}),
    swe_rollout.open_store("runs"),
    swe_rollout.StoredJob("file:///runs", "demo"),
    swe_rollout.LaunchedJob("demo", "rl", "s3://rollouts"),
    swe_rollout.RolloutJob.from_yaml(ROOT / "examples/01-release-pairs/job.yaml"),
]


@pytest.mark.threat(point=21)
@pytest.mark.parametrize("value", _SHOWN, ids=lambda value: type(value).__name__)
def test_what_users_see_of_an_object_is_one_line(value: object) -> None:
    shown = repr(value)
    assert shown.isprintable()
    assert len(shown) < 200
    assert "SECRET" not in shown
    assert " at 0x" not in shown


@pytest.mark.parametrize(
    "trainer", sorted((ROOT / "requirements/trainers").glob("*.in")), ids=lambda path: path.stem
)
def test_the_lock_of_a_trainer_has_all_that_the_package_needs(trainer: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in project["dependencies"]}
    locked = set(
        re.findall(r"^([\w.-]+)==", trainer.with_suffix(".txt").read_text("utf-8"), re.MULTILINE)
    )
    assert needed - locked == set(), f"scripts/trainers lock {trainer.stem}"
