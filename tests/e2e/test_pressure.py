"""Services that fail while a job runs: it waits, says so, and loses and charges nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.command import COMMAND, ROOT, Job, printed_json, swe_rollout
from e2e.records import committed, read

NO_MOUNT = 77
STARTING = '''
from pathlib import Path

from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox


class Starting:
    """Local sandboxes, which start while there is no file `full`."""

    def __init__(self, folder: str):
        self._folder = Path(folder)
        self._local = LocalProvider(LocalSandbox(), harmless=True)

    async def start(self, request):
        with (self._folder / "starts").open("a") as starts:
            starts.write("x")
        if (self._folder / "full").exists():
            raise OSError(28, "No space left on device")
        return await self._local.start(request)

    def prewarm(self, requests):
        pass

    async def delete_orphans(self, episodes):
        pass

    async def aclose(self):
        await self._local.aclose()
'''


def test_sandboxes_that_do_not_start_for_a_while_cost_no_episode(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    code = tmp_path / "starting.py"
    code.write_text(STARTING)
    (tmp_path / "full").touch()
    job = job_file(
        scenarios=["gold", "gold"],
        names=("semver", "sqlparse"),
        sandbox={"backend": {"use": "starting:Starting", "with": {"folder": str(tmp_path)}}},
        retry={"attempts": 4, "backoffSeconds": 0.05},
        grading={"enabled": False},
    )
    command = [*COMMAND, "run", str(job.path), "--with", str(code)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        lines = list[str]()
        for line in running.stderr:
            lines.append(line)
            if line.startswith("waiting: no sandbox starts"):
                (tmp_path / "full").unlink()
        assert running.wait() == 0, "".join(lines)
    assert any(line.startswith("going on: sandboxes start") for line in lines)
    status = printed_json(swe_rollout("status", job.uri, "-o", "json"))
    assert (status["committed"], status["masked"]) == (4, 0)


def serve(port: int) -> tuple[subprocess.Popen[str], str]:
    """Start the scripted engine as an SGLang server; port 0 is any. Returns its address too."""
    served = [*COMMAND, "engine", "serve-scripted", "--include", "sqlparse*", "--scenarios"]
    served += ["gold", "--context-tokens", "131072", "--port", str(port)]
    server = subprocess.Popen(served, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().strip()


@pytest.mark.slow
def test_an_engine_that_dies_and_comes_back_costs_no_attempt_and_no_time(
    job_file: Callable[..., Job],
) -> None:
    server, url = serve(0)
    job = job_file(
        scenarios=["gold"],
        samples=6,
        parallelism=1,
        policy={"sglang": {"url": url}},
        retry={"attempts": 1},
        grading={"enabled": False},
    )
    command = [*COMMAND, "run", str(job.path)]
    try:
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as running:
            assert running.stderr is not None
            lines = list[str]()
            for line in running.stderr:
                lines.append(line)
                if line.startswith("planned"):
                    server.kill()
                    server.communicate()
                if line.startswith("waiting: no engine responds"):
                    server, _ = serve(int(url.rpartition(":")[2]))
            assert running.wait() == 0, "".join(lines)
    finally:
        server.kill()
        server.communicate()
    assert any(line.startswith("going on: the engine responds") for line in lines)
    records = [read(path) for path in committed(job.folder)]
    assert [record["stop_reason"] for record in records] == ["submitted"] * 6
    assert {record["attempt"] for record in records} == {1}


IN_A_SMALL_DISK = """
mount -t tmpfs -o size=1m none "$1" || exit 77
"$2" -m swe_rollout.cli.main run "$3" >/dev/null || exit
exec "$2" -m swe_rollout.cli.main status "file://$1/job" -o json
"""


def test_a_run_whose_disk_is_full_for_a_while_loses_nothing_and_charges_nobody(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    job = job_file(scenarios=["gold", "gold"], grading={"enabled": False})
    disk = tmp_path / "store"
    disk.mkdir()
    script = ["sh", "-c", IN_A_SMALL_DISK, "sh", str(disk), sys.executable, str(job.path)]
    with subprocess.Popen(
        ["unshare", "-Urm", *script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        filler = Path(f"/proc/{running.pid}/root{disk}/filler")
        lines = list[str]()
        for line in running.stderr:
            lines.append(line)
            if line.startswith("planned"):
                fill(filler)
            if line.startswith("waiting: the store can't write"):
                assert "free space on its disk" in line
                filler.unlink()
        stdout, _ = running.communicate(timeout=100)
    if running.returncode == NO_MOUNT:
        pytest.skip("no user namespace with a mount of its own can be made here")
    assert running.returncode == 0, "".join(lines)
    assert any(line.startswith("going on: the store") for line in lines), "".join(lines)
    status = json.loads(stdout)
    assert (status["committed"], status["masked"]) == (2, 0)
    assert set(status["stop_reasons"]) == {"submitted"}


def fill(file: Path) -> None:
    """Write a file until its disk is full."""
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))
