"""Sandboxes in containers that kodo starts and runs commands in, on Kubernetes or Docker.

For teams whose clusters are set up for kodo. kodo runs one command at a time and returns text, so
the supervisor's stream goes over `exec_channel`. kodo's container settings are left as they are,
and isolate less than our own pods (docs/how-to/kodo.md). kodo is imported when the first provider
is made.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import re
import secrets
import shlex
import threading
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar, cast

import structlog

from swe_rollout.errors import PrerequisiteError, SandboxError, boundary
from swe_rollout.sandbox.base import SandboxRequest
from swe_rollout.sandbox.kodo.exec_channel import ExecChannel, RunnerResult
from swe_rollout.sandbox.session.bootstrap import install_command
from swe_rollout.sandbox.session.channel import StreamLostError
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import KodoSandbox
from swe_rollout.types.episode import EpisodeId

log = structlog.get_logger()
_Result = TypeVar("_Result")
INSTALL: Final = "pip install git+https://github.com/baidubce/kodo"
_THREADS: Final = 512
"""Two per sandbox: one of them waits for the supervisor's output."""
_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
_MAX_PROCESSES: Final = 4096


class Runner(Protocol):
    """The part of `kodo.ContainerRunner` that we use."""

    def start_container(self, image: str, name: str | None = None, **options: object) -> object:
        """Start a container, or return the existing one of this name."""
        ...

    def execute_command(self, container_ref: object, command: str, *, timeout: int) -> object:
        """Return the output of both streams, and a status: `0`, `Error: Exit code 2`, `-1`."""
        ...

    def stop_container(self, container_ref: object) -> None:
        """Remove the container."""
        ...


@dataclass(frozen=True, slots=True)
class _Container:
    """A container, and the runner that started it; only that runner can remove it."""

    runner: Runner
    reference: object


class KodoProvider:
    """Start one container for each sandbox."""

    def __init__(self, spec: KodoSandbox, *, runner: Callable[[], Runner] | None = None) -> None:
        """Use `runner` in place of kodo's, whose absence raises PrerequisiteError."""
        self._spec = spec
        self._make = runner or partial(_kodo_runner(), spec)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kodo")
        self._own = threading.local()
        self._open: set[ExecChannel] = set()
        self._undoing: set[asyncio.Task[None]] = set()
        self.warning = _warning(spec)
        """Warning for users who run untrusted commands; empty on Docker."""

    async def start(self, request: SandboxRequest) -> Session:
        name = f"swe-rollout-{request.episode.digest}-{request.role.value}-{secrets.token_hex(4)}"
        starting = asyncio.create_task(self._in_thread(self._start_container, name, request))
        with ExitStack() as cleanup:
            cleanup.callback(self._undo, starting)
            async with boundary(SandboxError, f"kodo: starting {request.image}"):
                container = await asyncio.shield(starting)
            cleanup.pop_all()
        log.info("kodo_container_started", name=name, backend=self._spec.backend)
        return await self._enter(container, request)

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        """Do nothing: kodo starts containers only on request."""

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        """Do nothing: kodo sets no labels to find containers by; they end at their deadline."""

    async def aclose(self) -> None:
        """Remove the containers that are still open, and stop the threads."""
        await asyncio.gather(*(channel.close() for channel in tuple(self._open)))
        await asyncio.gather(*tuple(self._undoing))
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _enter(self, container: _Container, request: SandboxRequest) -> Session:
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(lambda: asyncio.shield(self._stop(container)))
            channel = await ExecChannel.start(
                partial(self._execute, container),
                install_command(),
                at_end=partial(self._stop, container),
            )
            cleanup.pop_all()
        self._open.add(channel)
        env = {} if self._spec.path is None else {"PATH": self._spec.path}
        session = await Session.open(channel, workdir=request.workdir, env=env, timeout_s=120)
        async with AsyncExitStack() as cleanup:
            cleanup.push_async_callback(session.close)
            await session.check_workdir(f"looked for in a container of {request.image}")
            cleanup.pop_all()
        if request.snapshots:
            session.track()
        return session

    def _start_container(self, name: str, request: SandboxRequest) -> _Container:
        runner = self._make()
        # kodo would reuse a container of the same name; the random suffix rules that out.
        options = _options(self._spec, deadline_s=request.deadline_s)
        return _Container(runner, runner.start_container(request.image, name, **options))

    async def _execute(
        self, container: _Container, script: str, *, timeout_s: float
    ) -> RunnerResult:
        output = await self._in_thread(
            lambda: self._runner().execute_command(
                container.reference, script, timeout=math.ceil(timeout_s)
            )
        )
        return _parse_output(output)

    async def _stop(self, container: _Container) -> None:
        self._open = {channel for channel in self._open if not channel.ended}
        await self._in_thread(container.runner.stop_container, container.reference)

    def _undo(self, starting: asyncio.Task[_Container]) -> None:
        """Remove the container of an abandoned start once it is up; its thread can't be stopped."""

        async def undo() -> None:
            (container,) = await asyncio.gather(starting, return_exceptions=True)
            if isinstance(container, _Container):
                await self._stop(container)

        task = asyncio.create_task(undo())
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    def _runner(self) -> Runner:
        """Return this thread's own runner: an open exec breaks other threads of its client."""
        if not hasattr(self._own, "runner"):
            self._own.runner = self._make()
        return cast("Runner", self._own.runner)

    async def _in_thread(self, work: Callable[..., _Result], *arguments: object) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


class Listener(Protocol):
    """The receiver of notes while sandboxes are being opened."""

    @property
    def on_note(self) -> Callable[[str], None]:
        """Called with notes for the user."""
        ...


def open_kodo(setup: Listener, *, options: KodoSandbox) -> KodoProvider:
    """Open sandboxes in kodo's containers: the entry `kodo` of the extension point."""
    provider = KodoProvider(options)
    if provider.warning:
        setup.on_note(f"warning: {provider.warning}")
    return provider


def _kodo_runner() -> Callable[[KodoSandbox], Runner]:
    """Return a function that creates kodo's runners."""
    try:
        kodo = importlib.import_module("kodo")
    except ImportError as error:
        raise PrerequisiteError(
            "kodo is not installed here",
            why=f"{error}; it is not on the package index",
            fix=f"{INSTALL}; or use our own pods: `--sandbox pod`",
        ) from error

    def make(spec: KodoSandbox) -> Runner:
        if spec.backend == "docker":
            return cast("Runner", kodo.ContainerRunner("docker"))
        # kodo's proxy switch would edit this process's environment, from many threads.
        return cast(
            "Runner",
            kodo.ContainerRunner(
                "kubernetes",
                namespace=spec.namespace,
                kubeconfig_path=spec.kubeconfig,
                disable_proxy=False,
            ),
        )

    return make


def _options(spec: KodoSandbox, *, deadline_s: float) -> dict[str, object]:
    """Return the backend's start options other than image and name."""
    # Process 1 adopts orphaned processes and ends by itself at the deadline.
    idle = f'trap "exit 143" TERM; sleep {math.ceil(deadline_s)} & wait'
    environment = {} if spec.path is None else {"PATH": spec.path}
    resources = spec.resources
    if spec.backend == "docker":
        return {
            "command": shlex.join(["/bin/sh", "-c", idle]),
            "environment": environment,
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "cap_add": list(_CAPABILITIES),
            "security_opt": ["no-new-privileges"],
            "pids_limit": _MAX_PROCESSES,
            "mem_limit": re.sub(r"i$", "", resources.memory).lower(),
        }
    both = {"memory": resources.memory, "ephemeral-storage": resources.ephemeral_storage}
    limits = both if resources.cpu_limit is None else {**both, "cpu": resources.cpu_limit}
    return {
        "command": idle,
        "environment": environment,
        "resources": {"requests": {**both, "cpu": resources.cpu}, "limits": limits},
        "node_selector": spec.node_selector or None,
        "timeout": math.ceil(spec.start_seconds),
    }


def _parse_output(output: object) -> RunnerResult:
    """Parse kodo's pair of texts; raises StreamLostError for anything reported as `-1`."""
    match output:
        case (str(text), str(status)) if found := re.fullmatch(
            r"(?:Error: Exit code )?(\d+)", status
        ):
            return RunnerResult(int(found[1]), text)
        case (str(text), _):
            raise StreamLostError(
                "kodo's command failed", why=text[-500:], fix="see what happened to its container"
            )
        case _:
            raise SandboxError(
                "this version of kodo is not supported",
                why=f"a command came back as {type(output).__name__}",
                fix=INSTALL,
                retryable=False,
            )


def _warning(spec: KodoSandbox) -> str:
    if spec.backend == "docker":
        return ""
    return (
        "kodo's pods are less isolated than ours: they hold a token of the namespace's service "
        "account, and only the namespace's policies limit their network. "
        "Forbid both there, or use `pod`: docs/how-to/kodo.md"
    )
