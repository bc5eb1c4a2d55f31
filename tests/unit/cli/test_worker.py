"""The command of the worker pods: its exit codes and its termination message."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from swe_rollout.cli import worker
from swe_rollout.cli.main import build_app
from swe_rollout.errors import (
    ClusterError,
    PrerequisiteError,
    Problem,
    SpecError,
    StoreError,
    UnreachableError,
)
from swe_rollout.observer import Observer
from swe_rollout.spec.worker_exits import FATAL
from swe_rollout.store.claims import ClaimLostError
from swe_rollout.worker import cluster_worker
from swe_rollout.worker.cluster_worker import KilledTooOftenError, WorkerExit, WorkerIdentity
from swe_rollout.worker.failure_budget import BudgetSpentError
from swe_rollout.worker.job import DeadlineExceededError
from waits import PATIENCE_S

WHERE = ["worker", "--namespace", "rl", "--job", "nightly"]


@pytest.fixture
def termination_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setattr(worker, "TERMINATION_LOG", path)
    return path


def run(
    monkeypatch: pytest.MonkeyPatch, end: WorkerExit | Exception, **env: str
) -> tuple[Result, list[WorkerIdentity]]:
    """Run the command with work that ends like this; also returns the identities it worked as."""
    identities: list[WorkerIdentity] = []

    async def work(
        identity: WorkerIdentity, *, stop: asyncio.Event, observer: Observer | None
    ) -> WorkerExit:
        assert observer is None
        identities.append(identity)
        assert not stop.is_set()
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr(cluster_worker, "work", work)
    variables = {"JOB_COMPLETION_INDEX": "3", "POD_NAME": "nightly-workers-3-x"} | env
    return CliRunner().invoke(build_app(), WHERE, env=variables), identities


def test_the_identity_comes_from_the_pods_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    result, identities = run(monkeypatch, WorkerExit.FINISHED)
    assert result.exit_code == 0, result.output
    assert identities == [WorkerIdentity("rl", "nightly", 3, None, "nightly-workers-3-x")]


def test_the_pods_variable_serves_metrics_and_a_bad_one_stops_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observers: list[Observer | None] = []

    async def work(
        identity: WorkerIdentity, *, stop: asyncio.Event, observer: Observer | None
    ) -> WorkerExit:
        del identity, stop
        observers.append(observer)
        return WorkerExit.FINISHED

    monkeypatch.setattr(cluster_worker, "work", work)
    for address in ("127.0.0.1:0", "nowhere"):
        variables = {"JOB_COMPLETION_INDEX": "3", "SWE_ROLLOUT_WORKER_METRICS": address}
        result = CliRunner().invoke(build_app(), WHERE, env=variables)
        assert result.exit_code == 0, result.output
    served, refused = observers
    assert served is not None
    assert refused is None


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        (WorkerExit.DRAINED, 143, ""),
        (
            PrerequisiteError("no\nimage", why="it is\nnot there", fix="push it"),
            78,
            "no image: it is not there. push it",
        ),
        (
            SpecError(
                "not valid",
                [Problem("rolloutjob/nightly:7", "spec.samples", "at least 1")],
                fix="correct it",
            ),
            78,
            "not valid. rolloutjob/nightly:7: spec.samples: at least 1. correct it",
        ),
        (UnreachableError("no API server"), 75, "no API server"),
        (StoreError("the store can't write"), 75, "the store can't write"),
        (StoreError("access denied", retryable=False), 78, "access denied"),
        (ClusterError("Kubernetes refused", why="500"), 75, "Kubernetes refused: 500"),
        (ClaimLostError("taken over"), 75, "taken over"),
        (BudgetSpentError("too many failures"), 78, "too many failures"),
        (DeadlineExceededError("too late"), 78, "too late"),
        (
            KilledTooOftenError("killed 5 times", fix="raise the memory"),
            71,
            "killed 5 times. raise the memory",
        ),
    ],
    ids=str,
)
def test_the_end_of_a_worker_has_its_code_and_its_termination_message(
    end: WorkerExit | Exception,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    termination_log: Path,
) -> None:
    result, (identity,) = run(monkeypatch, end, SWE_ROLLOUT_WORKER_LIVES="/lives")

    assert result.exit_code == code
    assert (code in FATAL) is (code == 78)
    assert termination_log.read_text() == message
    assert identity.lives == Path("/lives")


def test_a_worker_without_an_index_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    result, identities = run(monkeypatch, WorkerExit.FINISHED, JOB_COMPLETION_INDEX="")
    assert (result.exit_code, identities) == (2, [])


@pytest.fixture
def silent_cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the environment of a worker whose API server accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        config = tmp_path / "kubeconfig"
        config.write_text(
            f"""apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: c, user: {{token: t}}}}]
contexts: [{{name: c, context: {{cluster: c, user: c}}}}]
"""
        )
        yield {**os.environ, "KUBECONFIG": str(config), "JOB_COMPLETION_INDEX": "0"}


@pytest.mark.threat(point=29)
@pytest.mark.parametrize("after_s", [0.0, 0.3, 1.0])
def test_sigterm_ends_a_worker_at_any_moment_of_its_start(
    silent_cluster: dict[str, str], after_s: float
) -> None:
    command = [sys.executable, "-m", "swe_rollout.cli.main", *WHERE]
    process = subprocess.Popen(command, env=silent_cluster, stderr=subprocess.DEVNULL)
    try:
        time.sleep(after_s)
        process.terminate()
        # Before it handles signals, the signal itself ends it; Kubernetes reports 143 for both.
        assert process.wait(timeout=PATIENCE_S) in (143, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


@pytest.mark.threat(point=29)
def test_a_signal_that_an_import_lost_still_ends_a_worker() -> None:
    script = """
import signal
import weakref
from swe_rollout.cli import worker
from swe_rollout.cli.interrupt import terminate_as_interrupt
from swe_rollout.worker import cluster_worker
async def work(identity, *, stop, observer):
    await stop.wait()
    return cluster_worker.WorkerExit.DRAINED
cluster_worker.work = work
terminate_as_interrupt()
gone = lambda: None
watched = weakref.ref(gone, lambda _: signal.raise_signal(signal.SIGTERM))
del gone
try:
    worker.worker("rl", "nightly", 0)
except worker.typer.Exit as exit:
    raise SystemExit(exit.exit_code)
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, check=False, stderr=subprocess.PIPE, timeout=PATIENCE_S, text=True
    )
    assert "Exception ignored in" in ended.stderr
    assert ended.returncode == 143


@pytest.mark.threat(point=29)
def test_code_that_holds_the_loop_does_not_hold_the_worker() -> None:
    script = """
import time
from swe_rollout.cli import worker
from swe_rollout.worker import cluster_worker
worker.END_S = 0.5
async def work(identity, *, stop, observer):
    print("started", flush=True)
    time.sleep(600)
cluster_worker.work = work
worker.worker("rl", "nightly", 0)
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.terminate()
        assert process.wait(timeout=PATIENCE_S) == 143
