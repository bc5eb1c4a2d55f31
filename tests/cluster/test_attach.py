"""SIGKILL of a process with sandboxes in pods: the next one attaches to them, or rebuilds them."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from cluster.needs import TIER
from cluster.serving_policy import FOLDER
from cluster.site import ROOT, Json, kubectl, until
from e2e.records import read_bytes
from swe_rollout.sandbox.session.keys import VARIABLE

pytestmark = TIER
_LOOKS = 'echo 2 >>counted; kill -0 "$(cat /tmp/server)" && echo alive >>counted; true'
_STAYS = "echo 2 >>counted; touch /tmp/began; sleep 5"


@dataclass
class Run:
    """A job of one episode, and the processes that play it one after the other."""

    folder: Path
    command: str
    resume: str = "exact"
    warm: bool = False
    name: str = field(default_factory=lambda: f"attach-{uuid.uuid4().hex[:6]}")
    running: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        use = {"use": "cluster.serving_policy:Serving", "with": {"last_but_one": self.command}}
        small = {"cpu": "10m", "memory": "128Mi", "ephemeralStorage": "64Mi"}
        pod: Json = {"resources": small} | ({"warm": {"cap": 1}} if self.warm else {})
        spec = {
            "dataset": {"releasePairs": {"names": ["sqlparse"]}},
            "policy": {"engine": use},
            "limits": {"turns": 5, "contextTokens": 131072},
            "grading": {"enabled": False},
            "retry": {"resume": self.resume},
            "sandbox": {"pod": pod},
            "store": {"uri": f"file://{self.folder}/store"},
        }
        head = {"apiVersion": "swe-rollout.dev/v1alpha1", "kind": "RolloutJob"}
        document = head | {"metadata": {"name": self.name}, "spec": spec}
        (self.folder / "job.yaml").write_text(yaml.safe_dump(document))
        (self.folder / "held").touch()

    def start(self, **env: str) -> None:
        """Start the next process."""
        path = f"{ROOT / 'scripts'}:{ROOT / 'tests'}"
        with (self.folder / "log").open("ab") as log:
            self.running = subprocess.Popen(
                [sys.executable, "-m", "swe_rollout.cli.main", "run", self.folder / "job.yaml"],
                env={**os.environ, "PYTHONPATH": path, FOLDER: str(self.folder), **env},
                stdout=log,
                stderr=log,
            )

    def until(self, true: Callable[[], bool], within_s: float = 120) -> None:
        """Wait, and say what the processes said if that takes too long."""
        until(true, within_s=within_s, details=self.words)

    def until_durable(self, chunks: int) -> None:
        """Wait until so many turns are written, and the one after them is asked for."""
        store = self.folder / "store"
        self.until(lambda: len(list(store.glob("*/journals/**/*.zst"))) >= chunks)
        self.until((self.folder / f"asked-{chunks}").exists)

    def kill(self) -> None:
        """Kill the process and let the engine go on."""
        assert self.running is not None
        self.running.kill()
        self.running.wait()
        (self.folder / "held").unlink(missing_ok=True)

    def record(self) -> Json:
        """Return the record, once the process has ended."""
        assert self.running is not None
        assert self.running.wait(timeout=180) == 0, self.words()
        (path,) = (self.folder / "store").glob("*/episodes/**/trajectory.json.zst")
        return read_bytes(path.read_bytes())

    def pods(self, selector: str = "swe-rollout.dev/episode") -> list[str]:
        """List the names and uids of the job's pods, by default of those with an episode."""
        columns = "-o=jsonpath={range .items[*]}{.metadata.name}/{.metadata.uid}{'\\n'}{end}"
        mine = f"-lswe-rollout.dev/job={self.name},{selector}"
        return kubectl("get", "pods", mine, columns).split()

    def in_pod(self, *command: str) -> str:
        """Run a command in the agent's pod."""
        return kubectl("exec", self.pods()[0].partition("/")[0], "--", *command, check=False)

    def words(self) -> str:
        """Return what the processes said."""
        return (self.folder / "log").read_text()


@pytest.fixture
def key() -> dict[str, str]:
    """The variable with the job's secret."""
    return {VARIABLE: secrets.token_hex(32)}


@pytest.fixture
def run_of(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(command: str, resume: str = "exact", *, warm: bool = False) -> Run:
        made.append(Run(tmp_path, command, resume, warm))
        return made[-1]

    yield make
    for run in made:
        if run.running is not None:
            run.running.kill()
            run.running.wait()
        kubectl("delete", "pods", f"-lswe-rollout.dev/job={run.name}", "--wait=false", check=False)


def counted(record: Json) -> list[str]:
    return [
        line[1:] for line in record["patch"].splitlines() if line[:2] in {"+0", "+1", "+2", "+a"}
    ]


def none_left(run: Run) -> None:
    run.until(lambda: run.pods("swe-rollout.dev/role") == [], within_s=30)


@pytest.mark.parametrize("warm", [False, True])
def test_a_process_of_the_agent_survives_the_worker(
    run_of: Callable[..., Run], key: dict[str, str], *, warm: bool
) -> None:
    """Issue 16, point 2: killed while the engine samples, `resume: exact`, the very same pod."""
    run = run_of(_LOOKS, warm=warm)
    run.start(**key)
    run.until_durable(2)
    before = run.pods()
    run.kill()
    run.start(**key)
    run.until((run.folder / "asked-3").exists)
    assert set(run.pods()) <= set(before), run.words()
    record = run.record()
    assert record["resumption"] == {"times": 1, "lost": [], "attached": 1}, run.words()
    assert counted(record) == ["0", "1", "2", "alive"]
    none_left(run)


@pytest.mark.slow
@pytest.mark.parametrize(("resume", "lost"), [("exact", None), ("best", ["process: sleep 1000"])])
def test_a_command_that_runs_when_the_worker_dies_is_rolled_back(
    run_of: Callable[..., Run], key: dict[str, str], resume: str, lost: list[str] | None
) -> None:
    run = run_of(_STAYS, resume)
    run.start(**key)
    run.until_durable(2)
    (run.folder / "held").unlink()
    run.until(lambda: "began" in run.in_pod("ls", "/tmp"))  # noqa: S108 - of the pod
    run.kill()
    run.start(**key)
    record = run.record()
    found = record.get("resumption")
    assert found == (None if lost is None else {"times": 1, "lost": lost, "attached": 0})
    assert counted(record) == ["0", "1", "2"]
    none_left(run)


@pytest.mark.slow
def test_who_has_another_secret_can_not_attach_and_rebuilds(
    run_of: Callable[..., Run], key: dict[str, str]
) -> None:
    run = run_of(_LOOKS, "best")
    run.start(**key)
    run.until_durable(2)
    before = run.pods()
    run.kill()
    run.start(**{VARIABLE: secrets.token_hex(32)})
    record = run.record()
    assert not set(run.pods()) & set(before)
    assert record["resumption"]["attached"] == 0
    assert record["resumption"]["lost"] == ["process: sleep 1000"]
    assert counted(record) == ["0", "1", "2"]
    none_left(run)
