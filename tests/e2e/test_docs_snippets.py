"""Python on the pages that no other test runs: each snippet as it stands, on real results.

What names a reader's own things (a bucket, a server, a dataset) has a stand-in here, and is named
beside the snippet. `unit/test_docs_run` holds that every page has a test.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from checkout import ROOT
from doc_steps import steps
from e2e.command import swe_rollout
from swe_rollout import RolloutJob
from swe_rollout.agent.tools import TOOLS
from swe_rollout.datasets.base import load
from swe_rollout.datasets.swebench_row import to_row
from swe_rollout.grading.rewards import REWARD_TERMS
from swe_rollout.launcher.launched_job import LaunchedJob
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from tree_images import make_tree_image

SGLANG = '{"sglang": {"url": "http://sglang:30000"}, "tokenizer": "Qwen/Qwen3-8B"}'
SCRIPTED = '{"scripted": {"scenarios": ["gold"]}}'
LOCAL_TOOL = """\
from swe_rollout import tool


@tool
async def lookup(name: str) -> str:
    \"\"\"Look up who wrote something.\"\"\"
    return name
"""
REWARD = """\
from swe_rollout.grading.rewards import RewardInput


def small_patch(given: RewardInput) -> float:
    return float(len(given.patch) < 1000)
"""


def snippets(page: str) -> list[str]:
    """Return the Python of a page; of a session in an interpreter, what was typed."""
    found = [step.text for step in steps(ROOT / "docs" / page) if step.language == "python"]
    return [
        "\n".join(line[4:] for line in text.splitlines() if line.startswith(">>> "))
        if text.startswith(">>>")
        else text
        for text in found
    ]


def run(text: str, **given: Any) -> dict[str, Any]:
    """Run a snippet with those names; an `await` may stand anywhere. Returns its names."""
    names: dict[str, Any] = dict(given)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(text, "snippet", "exec", flags=flags, dont_inherit=True)
    found = eval(code, names)  # noqa: S307 - our own pages
    if inspect.isawaitable(found):

        async def awaited() -> None:
            await found

        asyncio.run(awaited())
    return names


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader who has followed the first page of the tutorial."""
    folder = tmp_path_factory.mktemp("hour")
    swe_rollout("init", str(folder / "job.yaml"))
    swe_rollout("run", str(folder / "job.yaml"), "--store", f"file://{folder}/runs")
    return folder


@pytest.fixture
def here(hour: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(hour)
    return hour


@pytest.mark.usefixtures("here")
def test_results_in_a_notebook() -> None:
    play, frame = snippets("how-to/notebook.md")
    assert len(list(run(play)["result"])) == 4
    means = run(f"{frame.strip().replace('frame[~', 'means = frame[~')}")["means"]
    assert means.to_dict() == {"sqlparse-0.5.2": 0.5}


@pytest.mark.usefixtures("here")
def test_a_job_from_python(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, session, rows, prompts = snippets("how-to/python.md")

    # tests/cluster launches examples/02-launch; here a job that has ended stands in for it.
    launched = LaunchedJob("demo", "rollouts", f"file://{Path.cwd()}/runs")
    monkeypatch.setattr(LaunchedJob, "wait", lambda _: None)
    monkeypatch.setattr(RolloutJob, "launch", lambda _: launched)
    assert run(launch)["trajectory"].token_ids

    # Of the pages' names, only RolloutJob is not imported twice.
    assert "4/4 committed" in repr(run(session, RolloutJob=RolloutJob)["result"])

    job = RolloutJob.from_yaml("job.yaml")
    tasks = asyncio.run(load(job.spec.dataset, base_dir=Path.cwd(), on_progress=lambda _: None))
    dataset = [dict(to_row(each)) | {"repo": "django/django"} for each in tasks.instances]
    made = run(rows, dataset=dataset, RolloutJob=RolloutJob)["job"]
    assert (made.metadata.name, made.spec.samples) == ("django", 8)

    assert SGLANG in prompts
    module = ModuleType("my_tools")
    exec(LOCAL_TOOL, module.__dict__)  # noqa: S102 - a file of this test
    monkeypatch.setitem(sys.modules, "my_tools", module)
    played = run(prompts.replace(SGLANG, SCRIPTED))
    assert played["trajectory"].token_ids


@pytest.mark.usefixtures("here")
def test_damaged_records_are_set_aside() -> None:
    (text,) = snippets("how-to/run-again.md")
    assert '"s3://rollouts"' in text
    run(text.replace('"s3://rollouts"', '"runs"'))


@pytest.mark.usefixtures("here")
def test_one_episode_is_observed() -> None:
    (text,) = snippets("how-to/observe.md")
    port = text.replace("127.0.0.1:9464", "127.0.0.1:0")
    played = run(port, job=RolloutJob.from_yaml("job.yaml"))["trajectory"]
    assert played.reward is not None


def test_a_template_is_checked_from_python() -> None:
    (text,) = snippets("how-to/check-a-template.md")
    assert '"models/my-qwen3"' in text
    assert run(text.replace('"models/my-qwen3"', repr(str(tokenizer_path()))))["found"].passed


@pytest.fixture
def provider(tmp_path: Path) -> LocalProvider:
    """Sandboxes of an image with a Makefile's program, without isolation."""
    make_tree_image("image:1", tmp_path / "images", {"Makefile": "all:\n\techo built >made\n"})
    return LocalProvider(LocalSandbox(images=str(tmp_path / "images"), isolation="none"))


def test_a_sandbox_is_rebuilt(provider: LocalProvider) -> None:
    (text,) = snippets("explanation/snapshots.md")
    read = 'made = (await other.exec("cat made || true")).stdout\nawait provider.aclose()\n'
    given: dict[str, Any] = {
        "provider": provider,
        "SandboxRequest": SandboxRequest,
        "Role": Role,
        "episode": EpisodeId("demo", "a", 0),
        "image": "image:1",
    }
    assert run(text + read, **given)["made"] == b"built\n"


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test modules and registered names of its own: others use the same ones."""
    for point in (TOOLS, REWARD_TERMS):
        monkeypatch.setattr(point, "_registered", {})
    for name in ("my_tools", "my_rewards"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_extensions_are_given_as_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = snippets("how-to/extend.md")
    swe_rollout("init", str(tmp_path / "job.yaml"))
    (tmp_path / "my_tools.py").write_text(snippets("how-to/extend/tools.md")[0])
    (tmp_path / "my_rewards.py").write_text(REWARD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    played: list[RolloutJob] = []

    def keep(job: RolloutJob) -> None:  # e2e/test_extensions plays such jobs
        played.append(job)

    monkeypatch.setattr(RolloutJob, "run", keep)

    run(text)

    (job,) = played
    assert "my_tools:lint" in [each.use for each in job.spec.agent.tools]
    assert [each.use for each in job.spec.grading.reward] == ["resolved", "my_rewards:small_patch"]
    assert len(job.spec.extensions) == 2
