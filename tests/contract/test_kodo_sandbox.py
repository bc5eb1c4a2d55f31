"""The sandbox contract over a runner that has kodo's API, on this machine."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FunctionType

import pytest

from swe_rollout.errors import PrerequisiteError, SandboxError
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.kodo.provider import KodoProvider
from swe_rollout.spec.sandbox import KodoSandbox
from swe_rollout.testing.sandbox_contract import SandboxContract
from swe_rollout.types.episode import EpisodeId


def _fail(refusal: Exception) -> None:
    raise refusal


class Shells:
    """Results like those of `kodo.ContainerRunner`: merged text, no colours, a status text."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._calls = 0
        self.work = home / "work"
        self.work.mkdir()
        self.lose_every = 0
        """Every so many calls, one is carried out and its result lost."""
        self.refusal: Exception | None = None
        self.slow_s = 0.0
        self._files: set[str] = set()
        """What its commands make outside of its home, which a container takes with it."""
        self.started: list[object] = []
        self.stopped: list[object] = []

    def start_container(self, image: str, name: str | None = None, **options: object) -> str:
        assert image
        assert options["command"]
        time.sleep(self.slow_s)
        if self.refusal is not None:
            # From kodo's file: an exception from a file of the user's would be the user's.
            file = f"{sysconfig.get_path('purelib')}/kodo/runner.py"
            FunctionType(_fail.__code__.replace(co_filename=file), {})(self.refusal)
        self.started.append(name)
        return str(name)

    def execute_command(
        self, container_ref: object, command: str, *, timeout: int
    ) -> tuple[str, str]:
        assert container_ref
        self._calls += 1
        self._files.update(re.findall(r"/\w+/\.swe-rollout-stream\.[0-9a-f]+", command))
        lost = self.lose_every and self._calls % self.lose_every == 0
        shell = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._home,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "KODO_TEST": str(self._home)},
            start_new_session=True,
        )
        output = shell.communicate(timeout=timeout)[0]
        if lost:
            return "Error: ApiException()", "-1"
        text = output.decode("utf-8", "replace").replace("\r", "")
        return text, "0" if shell.returncode == 0 else f"Error: Exit code {shell.returncode}"

    def stop_container(self, container_ref: object) -> None:
        self.stopped.append(container_ref)
        mark = f"KODO_TEST={self._home}".encode()
        for _ in range(5):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if mark in (process / "environ").read_bytes().split(b"\0"):
                        os.kill(int(process.name), signal.SIGKILL)
        for folder in self._files:
            shutil.rmtree(folder, ignore_errors=True)


REQUEST = SandboxRequest(
    episode=EpisodeId("contract", "one", 0), role=Role.AGENT, image="any", workdir="/"
)


@pytest.fixture
def shells(tmp_path: Path) -> Iterator[Shells]:
    shells = Shells(tmp_path)
    yield shells
    shells.stop_container("all")


@pytest.fixture
async def provider(shells: Shells) -> AsyncIterator[KodoProvider]:
    provider = KodoProvider(KodoSandbox(), runner=lambda: shells)
    yield provider
    await provider.aclose()


@pytest.fixture
async def sandbox(provider: KodoProvider, shells: Shells) -> AsyncIterator[Sandbox]:
    sandbox = await provider.start(replace(REQUEST, workdir=str(shells.work)))
    yield sandbox
    await sandbox.close()


class TestKodo(SandboxContract):
    has_bash = shutil.which("bash") is not None

    @pytest.fixture
    async def sandbox(self, provider: KodoProvider, shells: Shells) -> AsyncIterator[Sandbox]:
        sandbox = await provider.start(replace(REQUEST, workdir=str(shells.work)))
        yield sandbox
        await sandbox.close()


async def test_calls_whose_results_are_lost_are_repeated(sandbox: Sandbox, shells: Shells) -> None:
    shells.lose_every = 3
    data = os.urandom(500_000)
    await sandbox.exec("cat >>once", stdin=data)
    for _ in range(3):
        await sandbox.exec("echo x >>counter")
    shells.lose_every = 0
    assert await sandbox.read_file("once") == data
    assert await sandbox.read_file("counter") == b"x\n" * 3


async def test_a_container_that_is_gone_is_an_error(sandbox: Sandbox, shells: Shells) -> None:
    shells.stop_container("it")
    with pytest.raises(SandboxError):
        await sandbox.exec("true")


async def test_an_image_without_the_workdir_is_refused_and_removed(
    provider: KodoProvider, shells: Shells
) -> None:
    with pytest.raises(SandboxError, match="/no/such") as caught:
        await provider.start(replace(REQUEST, workdir="/no/such"))
    assert not caught.value.retryable
    assert shells.stopped == shells.started


async def test_a_start_that_fails_has_kodo_s_message(
    provider: KodoProvider, shells: Shells
) -> None:
    shells.refusal = RuntimeError("entered terminal phase 'Failed'")
    with pytest.raises(SandboxError, match="terminal phase"):
        await provider.start(REQUEST)


async def test_a_start_that_is_cancelled_leaves_no_container(
    provider: KodoProvider, shells: Shells
) -> None:
    shells.slow_s = 0.3
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(provider.start(REQUEST), 0.05)
    await provider.aclose()
    assert len(shells.started) == 1
    assert shells.stopped == shells.started


async def test_the_end_of_a_provider_removes_what_is_open(
    provider: KodoProvider, shells: Shells
) -> None:
    sandbox = await provider.start(replace(REQUEST, workdir=str(shells.work)))
    await provider.aclose()
    assert shells.stopped == shells.started
    with pytest.raises(SandboxError):
        await sandbox.exec("true")


async def test_without_kodo_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kodo", None)
    with pytest.raises(PrerequisiteError) as caught:
        KodoProvider(KodoSandbox())
    assert "pip install" in caught.value.fix


@pytest.mark.threat(point=22)
async def test_a_sandbox_leaves_nothing_on_the_machine_of_its_runner(
    provider: KodoProvider, shells: Shells
) -> None:
    made = set[Path]()
    sandbox = await provider.start(replace(REQUEST, workdir=str(shells.work)))
    made |= {Path(each) for each in shells._files}
    assert made
    assert all(each.is_dir() for each in made)
    await sandbox.close()
    assert not any(each.exists() for each in made)
