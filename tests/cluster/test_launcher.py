"""Jobs sent from Python, from the command line and from kubectl, to a real API server and operator.

The operator and the workers run in pods; the store is a small S3 server in the test's namespace.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.needs import TIER
from cluster.site import (
    ROOT,
    SYSTEM,
    Json,
    Site,
    build_images,
    install,
    job,
    kubectl,
    opened,
    until,
)
from e2e.command import COMMAND, printed_json, started, swe_rollout
from swe_rollout import LaunchedJob, RolloutJob
from swe_rollout.errors import UsageError
from swe_rollout.launcher.job_result import JobFailedError, JobRefusedError, JobTimeoutError

pytestmark = TIER

EXAMPLE = ROOT / "examples" / "02-launch"
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A namespace that the current context calls its own, on a cluster with an operator."""
    before = dict(os.environ)
    _install()
    try:
        with opened(f"launch-test-{uuid.uuid4().hex[:6]}") as found:
            kubeconfig = tmp_path_factory.mktemp("kube") / "config"
            kubeconfig.write_text(kubectl("config", "view", "--raw", "--flatten"))
            os.environ["KUBECONFIG"] = str(kubeconfig)
            kubectl("config", "set-context", "--current", "--namespace", found.namespace)
            yield found
    finally:
        os.environ.clear()
        os.environ.update(before)


def _install() -> None:
    """An operator, unless one runs already."""
    running = kubectl("get", "deployments", "-n", SYSTEM, "-o", "name", check=False)
    if not running.strip():
        build_images("dev-s3")
        install()


def written(folder: Path, document: Json) -> Path:
    """The job as a file."""
    path = folder / f"{document['metadata']['name']}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def cells() -> list[str]:
    """The code cells of the example."""
    parts = re.split(r"^# %%", (EXAMPLE / "launch.py").read_text(), flags=re.MULTILINE)[1:]
    return [
        body for head, _, body in (part.partition("\n") for part in parts) if "markdown" not in head
    ]


@pytest.mark.slow
def test_the_example_runs_as_a_script(site: Site) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "launch.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{site.namespace} launched s3://rollouts"
    assert "4/4 committed, mean reward 0.5" in lines
    assert any(line.endswith("rewards [1.0, 0.0, 1.0, 0.0]") for line in lines)
    assert lines[-1] == "4 trajectories are still there"
    assert site.objects("rj") == []


@pytest.mark.slow
def test_the_example_runs_cell_by_cell_as_a_notebooks_kernel_does(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = json.loads((EXAMPLE / "launch.ipynb").read_text())
    sources = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert [source.strip() for source in sources] == [cell.strip() for cell in cells()]
    names: dict[str, object] = {}

    async def kernel() -> None:
        for source in sources:
            exec(compile(source, "cell", "exec"), names)  # noqa: S102 - what a kernel does

    asyncio.run(kernel())

    # The same name and store as the script's job: what that one committed is not done again.
    assert "4/4 committed, mean reward 0.5" in capsys.readouterr().out
    assert site.objects("rj") == []


EXTENSIONS = {
    "03-custom-tool": "my_tools.py",
    "04-custom-reward": "my_rewards.py",
    "05-custom-dataset": "my_dataset.py",
}


@pytest.mark.slow
@pytest.mark.parametrize("example", EXTENSIONS)
def test_extensions_of_a_file_travel_with_the_job(example: str, site: Site) -> None:
    folder, template = ROOT / "examples" / example, job("x", ["gold", "empty"])["spec"]
    fields = {"sandbox": template["sandbox"], "workers": template["workers"]}
    sets = [f"--set=spec.{name}={json.dumps(value)}" for name, value in fields.items()]
    file = folder / EXTENSIONS[example]
    arguments = ["--with", str(file), "--store", "s3://rollouts", *sets, "-o", "json"]

    state = printed_json(swe_rollout("launch", str(folder / "job.yaml"), *arguments))

    assert (state["committed"], state["resolved"], state["masked"]) == (2, 1, 0)
    records = site.records(state["job"])
    digest = f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert [record["software"][file.name] for record in records] == [digest, digest]
    (entry,) = spec_of(site, state["job"])["extensions"]
    assert entry == {"name": file.name, "sha256": digest.removeprefix("sha256:")}
    gold = records[0]
    match example:
        case "03-custom-tool":
            last = gold["turns"][-1]["observations"][-1]["text"]
            assert last.startswith("handed in: sqlparse/")
        case "04-custom-reward":
            assert 1.0 < gold["reward"] < 1.25
        case _:
            assert gold["episode"] == "custom-dataset/sqlparse-0.5.2-hinted/0"


def test_an_extension_that_does_not_exist_ends_the_job_with_what_does(site: Site) -> None:
    site.apply(job("unknown-tool", ["gold"], agent={"tools": ["bash", "sumbit"]}))

    with pytest.raises((JobFailedError, JobRefusedError), match="no tool named sumbit"):
        LaunchedJob.find("unknown-tool").wait(timeout_s=120)


@pytest.mark.slow
def test_rows_of_this_process_are_rolled_out_on_the_cluster(site: Site) -> None:
    lines = swe_rollout("datasets", "rows", "release-pairs", "--include", "sqlparse*").stdout
    rows = [json.loads(line) for line in lines.splitlines()]
    spec = job("rows", ["gold", "empty"])["spec"]
    del spec["dataset"]

    launched = RolloutJob.from_rows(rows, name="rows", spec=spec).launch()
    summary = launched.wait(timeout_s=240)

    found = list(launched.trajectories())
    assert (summary.committed, summary.resolved, summary.masked) == (2, 1, 0)
    assert [(t.episode.instance, t.episode.sample, t.resolved) for t in found] == [
        (rows[0]["instance_id"], 0, True),
        (rows[0]["instance_id"], 1, False),
    ]
    assert LaunchedJob.find("rows") == launched
    assert launched.status().episodes.committed == 2
    assert launched.namespace == site.namespace


def test_a_job_is_followed_described_and_named_by_the_cluster(site: Site, tmp_path: Path) -> None:
    path = written(tmp_path, job("shown", ["gold", "wrong"]))

    followed = swe_rollout("launch", str(path), "-o", "json")

    state = printed_json(followed)
    assert (state["committed"], state["resolved"]) == (2, 1)
    assert "state job=shown state=Complete" in followed.stderr
    assert "planned episodes=2" in followed.stderr, "its records are read, too"
    assert printed_json(swe_rollout("watch", "shown", "--display", "none", "-o", "json")) == state
    assert printed_json(swe_rollout("status", "shown", "-o", "json")) == state
    assert printed_json(swe_rollout("status", f"{site.namespace}/shown", "-o", "json")) == state
    read = printed_json(swe_rollout("status", "s3://rollouts/shown", "-o", "json"))
    # Only the store knows the episodes of each task.
    assert [each["samples"] for each in read["instances"]] == [2]
    assert {**read, "instances": []} == state
    (listed,) = [j for j in printed_json(swe_rollout("status", "-o", "json"))["jobs"] if j == state]
    assert listed["job"] == "shown"
    reasons = {
        e["reason"] for e in printed_json(swe_rollout("events", "shown", "-o", "json"))["events"]
    }
    assert {"SuccessfulCreate", "AllCommitted"} <= reasons
    (instance,) = {t.episode.instance for t in LaunchedJob.find("shown").trajectories()}
    lines = swe_rollout("logs", f"shown/{instance}/1").stdout.splitlines()
    assert lines
    assert all(f"shown/{instance}/1" in line for line in lines)
    page = tmp_path / "page.html"
    swe_rollout("view", f"shown/{instance}/0", "-O", str(page))
    assert instance in page.read_text()
    exported = tmp_path / "shown.parquet"
    swe_rollout("export", "shown", "-n", site.namespace, "-O", str(exported))
    assert exported.stat().st_size > 1000


@pytest.mark.slow
def test_an_interrupt_leaves_the_job_running_and_says_how_to_end_it(
    site: Site, tmp_path: Path
) -> None:
    path = written(tmp_path, job("left", ["gold"] * 8, parallelism=1))
    command = [*COMMAND, "launch", str(path), "--display", "plain"]
    heard: list[str] = []
    with started(command, stderr=subprocess.PIPE) as follower:
        reader = threading.Thread(target=lambda: heard.extend(follower.stderr or ()))
        reader.start()
        until(
            lambda: any("state=" in line for line in heard), within_s=60, details=lambda: str(heard)
        )

        follower.send_signal(signal.SIGINT)

        assert follower.wait(timeout=20) == 130
        reader.join(timeout=20)
    told = (
        f"detached; the job keeps running. Stop it with: swe-rollout cancel {site.namespace}/left\n"
    )
    assert heard[-1] == told
    assert spec_of(site, "left")["parallelism"] == 1
    done = swe_rollout("cancel", f"{site.namespace}/left")
    assert done.stdout == "rolloutjob/left\n"
    assert site.sandboxes("left") == []
    with pytest.raises(UsageError, match="no RolloutJob left"):
        LaunchedJob.find("left")


def test_suspend_and_resume_change_the_spec_and_nothing_else(site: Site, tmp_path: Path) -> None:
    path = written(tmp_path, job("halted", ["gold"], suspend=True))
    swe_rollout("launch", str(path), "--detach")
    launched = LaunchedJob.find("halted")

    with pytest.raises(JobTimeoutError):
        launched.wait(timeout_s=0.5)
    swe_rollout("resume", "halted")
    assert spec_of(site, "halted")["suspend"] is False
    launched.suspend()
    assert spec_of(site, "halted")["suspend"] is True

    launched.cancel()
    launched.cancel()
    with pytest.raises(UsageError):
        launched.wait()


def spec_of(site: Site, name: str) -> Json:
    """The spec as the API server has it."""
    found: Json = json.loads(site.kubectl("get", "rj", name, "-o", "json"))["spec"]
    return found


def test_a_job_that_is_deleted_ends_the_wait_for_it(site: Site) -> None:
    document = job("deleted", ["gold"], suspend=True)
    launched = RolloutJob.model_validate(document).launch()
    timer = threading.Timer(2, lambda: site.kubectl("delete", "rj", "deleted"))
    timer.start()

    with pytest.raises(JobFailedError, match="deleted"):
        launched.wait(timeout_s=60)

    timer.join()


def test_a_job_that_no_worker_can_carry_out_ends_with_the_reason(site: Site) -> None:
    # Applied by another client: this one would not send it.
    site.apply(job("hopeless", ["gold"], agent={"tools": [{"use": "no name at all"}]}))

    done = swe_rollout("watch", "hopeless", "--display", "none", check=False)

    assert done.returncode in {1, 2}
    assert "error: RolloutJob/hopeless" in done.stderr
    assert "spec.agent.tools" in done.stderr
    with pytest.raises((JobFailedError, JobRefusedError), match=r"spec.agent.tools"):
        LaunchedJob.find("hopeless").wait()


@pytest.mark.parametrize(
    ("field", "code", "words"),
    [
        ("spec.store.uri=file://runs", 2, "swe-rollout run"),
        ("metadata.namespace=absent", 2, "kubectl create namespace absent"),
        ("spec.policy.sglang={url: 'http://engine:30000'}", 2, "exactly one"),
        ("spec.sandbox.pod.template={spec: {hostNetwork: true}}", 2, "hostNetwork"),
        (f"metadata.name={'a' * 41}", 2, "at most 40 characters"),
        ("spec.samples=2", 0, "dry run"),
    ],
)
def test_a_dry_run_is_checked_here_and_by_the_api_server_and_makes_nothing(
    field: str, code: int, words: str, site: Site, tmp_path: Path
) -> None:
    path = written(tmp_path, job("dry", ["gold"]))

    done = swe_rollout("launch", str(path), "--dry-run", "--set", field, check=False)

    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
    assert "dry" not in [each["metadata"]["name"] for each in site.objects("rj")]


def test_kubectl_has_the_verbs_as_a_plugin(site: Site) -> None:
    paths = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}

    def plugin(*arguments: str) -> subprocess.CompletedProcess[Any]:
        return subprocess.run(
            ["kubectl", "swe-rollout", *arguments],
            env=paths,
            capture_output=True,
            text=True,
            check=False,
        )

    listed = plugin("status", "-n", site.namespace, "-o", "json")
    wrong = plugin("frobnicate")

    assert "jobs" in json.loads(listed.stdout)
    assert wrong.returncode == 2
    assert "Usage: kubectl swe-rollout" in wrong.stderr
