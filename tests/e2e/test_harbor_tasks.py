"""Harbor's task folders end to end: the oracle earns 1, doing nothing 0, half the work a half.

More tasks, with images prepared for them: HARBOR_TASKS=folder HARBOR_IMAGES=folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from checkout import ROOT
from harbor_parts import TASKS, make_image
from swe_rollout import RolloutJob
from swe_rollout.datasets.base import load
from swe_rollout.errors import TaskError
from swe_rollout.grading.audit import Audit, audit
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.rewards import RewardInput, Rewards
from swe_rollout.grading.validate import validate_dataset
from swe_rollout.grading.wrong_patches import Wrong
from swe_rollout.sandbox.delta import Entry, Kind, write
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.repository import Patch
from swe_rollout.spec.dataset import Dataset
from swe_rollout.spec.grading import RewardUse
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.verdict import TestStatus, VerdictStatus

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs `apt-get install bubblewrap`"
)
EPISODE = EpisodeId("job", "stock-report", 0)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of the tasks, from which sandboxes start; none changes it."""
    folder = tmp_path_factory.mktemp("images")
    make_image(folder)
    return folder


def dataset(tasks: Path, **options: object) -> Dataset:
    use = {"use": "harbor", "with": {"uri": str(tasks), **options}}
    return Dataset.model_validate({"source": use})


@asynccontextmanager
async def grading(images: Path) -> AsyncIterator[Grader]:
    """A grader whose sandboxes start from these images."""
    provider = LocalProvider(LocalSandbox(images=str(images)))
    try:
        yield Grader(provider)
    finally:
        await provider.aclose()


async def graded(
    images: Path, *entries: Entry, tasks: Path = TASKS
) -> tuple[VerdictStatus, dict[str, float], float]:
    """Grade a delta; the verdict's status, the tests' numbers, and the reward by `reward_file`."""
    loaded = await load(dataset(tasks), base_dir=TASKS, on_progress=print)
    async with grading(images) as grader:
        patch = Patch(write(entries))
        verdict = await grader.grade(loaded.instances[0], patch, episode=EPISODE)
    rewards = Rewards([RewardUse(use="reward_file")])
    reward = await rewards.score(RewardInput(loaded.instances[0], verdict))
    return verdict.status, verdict.scores, reward.value


async def test_the_oracle_resolves_it_and_the_base_does_not(images: Path) -> None:
    loaded = await load(dataset(TASKS), base_dir=TASKS, on_progress=print)
    async with grading(images) as grader:
        (result,) = await validate_dataset(loaded.instances, grader, parallelism=1, on_result=print)
    assert result.problem == ""
    assert result.gold.scores == {"reward": 1.0, "report": 1.0, "folder": 1.0}
    assert result.empty.status is VerdictStatus.UNRESOLVED
    assert result.empty.report.fail_to_pass["report"] is TestStatus.FAILED


async def test_an_audit_runs_the_oracle_each_time_and_has_no_repository_to_break(
    images: Path,
) -> None:
    loaded = await load(dataset(TASKS), base_dir=TASKS, on_progress=print)
    async with grading(images) as grader:
        found = await audit(loaded.instances[0], grader, runs=2)
    assert isinstance(found, Audit)
    assert not found.is_bad
    assert found.verdicts["gold"] == (VerdictStatus.RESOLVED,) * 2
    assert found.verdicts["base"] == (VerdictStatus.UNRESOLVED,)
    assert set(found.not_applicable) == {each.value for each in Wrong}


async def test_half_of_the_work_is_half_of_the_reward(images: Path) -> None:
    report = b'{"total": 42, "missing": ["axe", "nail"]}'
    status, scores, reward = await graded(images, Entry("srv/report.json", Kind.FILE, report))
    assert status is VerdictStatus.UNRESOLVED
    assert scores["report"] == 1.0
    assert scores["folder"] == 0.0
    assert reward == 0.5


@pytest.mark.parametrize(
    "entry",
    [
        Entry("tests/test.sh", Kind.PROGRAM, b"#!/bin/sh\necho 1 >/logs/verifier/reward.txt\n"),
        Entry("logs/verifier/reward.txt", Kind.FILE, b"1"),
        Entry("app/../tests/judge.py", Kind.FILE, b"print(1)"),
        Entry("app2/x", Kind.FILE, b""),
        Entry("", Kind.GONE),
        Entry("app", Kind.LINK, b"/"),
    ],
)
async def test_no_change_outside_of_what_is_kept_is_made(images: Path, entry: Entry) -> None:
    status, scores, _ = await graded(images, entry)
    assert (status, scores) == (VerdictStatus.PATCH_FAILED, {})


async def test_links_of_the_agent_lead_nowhere_that_matters(images: Path) -> None:
    status, scores, _ = await graded(
        images,
        Entry("app/through", Kind.LINK, b"/tests"),
        Entry("app/through/test.sh", Kind.PROGRAM, b"#!/bin/sh\necho 1\n"),
        Entry("srv/report.json", Kind.LINK, b"/logs/verifier/reward.json"),
    )
    assert status in (VerdictStatus.PATCH_FAILED, VerdictStatus.UNRESOLVED)
    assert scores.get("reward", 0.0) < 1.0


def with_tests(folder: Path, script: str) -> Path:
    """Return tasks whose tests are this script."""
    tasks = Path(shutil.copytree(TASKS, folder / "tasks"))
    (tasks / "stock-report" / "tests" / "test.sh").write_text(f"#!/bin/sh\n{script}\n")
    return tasks


async def test_tests_that_never_write_a_reward_earn_none(images: Path, tmp_path: Path) -> None:
    tasks = with_tests(tmp_path, "no-such-program || exit 1; echo 1 >/logs/verifier/reward.txt")
    with pytest.raises(TaskError, match="write no reward") as caught:
        await graded(images, Entry("app/x", Kind.FILE, b"x"), tasks=tasks)
    assert "no-such-program" in caught.value.why


@pytest.mark.parametrize("written", ["", "nan", "one"])
async def test_an_agent_that_breaks_the_tests_earns_0(
    images: Path, tmp_path: Path, written: str
) -> None:
    script = "echo 1 >/logs/verifier/reward.txt; [ ! -e x ] || cp x /logs/verifier/reward.txt"
    entry = Entry("app/x", Kind.FILE, written.encode())
    status, scores, reward = await graded(images, entry, tasks=with_tests(tmp_path, script))
    assert (status, scores, reward) == (VerdictStatus.NO_TESTS_RAN, {}, 0.0)


async def test_a_reward_that_is_a_link_or_a_pipe_is_none(images: Path, tmp_path: Path) -> None:
    script = """
        cd /logs/verifier
        if [ -e /app/x ]; then echo 1 >/tmp/1; ln -s /tmp/1 reward.txt; mkfifo reward.json
        else echo 0 >reward.txt; fi
    """
    entry = Entry("app/x", Kind.FILE, b"")
    status, _, _ = await graded(images, entry, tasks=with_tests(tmp_path, script))
    assert status is VerdictStatus.NO_TESTS_RAN


async def test_what_tests_leave_running_writes_nothing_afterwards(
    images: Path, tmp_path: Path
) -> None:
    later = "(sleep 0.3; echo 1 >/logs/verifier/reward.txt) >/dev/null 2>&1 &"
    tasks = with_tests(tmp_path, f"{later}\necho 0 >/logs/verifier/reward.txt")
    status, scores, _ = await graded(images, Entry("app/x", Kind.FILE, b""), tasks=tasks)
    assert (status, scores) == (VerdictStatus.UNRESOLVED, {"reward": 0.0})


def test_a_job_of_scripted_policies(images: Path, tmp_path: Path) -> None:
    document = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "harbor"},
        "spec": {
            "dataset": {"source": {"use": "harbor", "with": {"uri": str(TASKS)}}},
            "samples": 3,
            "policy": {"scripted": {"scenarios": ["gold", "wrong", "empty"]}},
            "limits": {"turns": 20, "contextTokens": 65536},
            "sandbox": {"local": {"images": str(images)}},
            "store": {"uri": f"file://{tmp_path}/runs"},
        },
    }
    job = RolloutJob.model_validate(document)
    found = {t.episode.sample: t for t in job.run()}
    assert [reward.value for n in range(3) if (reward := found[n].reward)] == [1.0, 0.0, 0.0]
    assert found[2].verdict is not None
    assert found[2].verdict.status is VerdictStatus.EMPTY_PATCH
    patch = found[0].patch
    assert "diff --git a/app/stock.csv b/app/stock.csv\ndeleted file" in patch
    assert "diff --git a/app/report b/app/report\nnew file mode 100755\n" in patch
    assert "solution" not in patch
    assert "judge" not in patch


@pytest.mark.skipif("HARBOR_TASKS" not in os.environ, reason="HARBOR_TASKS names no tasks")
async def test_tasks_of_others(tmp_path: Path) -> None:
    wanted = dataset(Path(os.environ["HARBOR_TASKS"]), image="harbor/{name}:1")
    loaded = await load(wanted, base_dir=tmp_path, on_progress=print)
    async with grading(Path(os.environ["HARBOR_IMAGES"])) as grader:
        results = await validate_dataset(loaded.instances, grader, parallelism=1, on_result=print)
    assert not any(result.problem for result in results)


async def test_the_page_names_what_there_is(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "harbor-tasks.md").read_text()
    written = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    assert Rewards([RewardUse(use=name) for name in written["grading"]["reward"]])
    shutil.copytree(TASKS, tmp_path / "tasks")
    wanted = Dataset.model_validate(written["dataset"])
    loaded = await load(wanted, base_dir=tmp_path, on_progress=print)
    assert [each.instance_id for each in loaded.instances] == ["stock-report"]
