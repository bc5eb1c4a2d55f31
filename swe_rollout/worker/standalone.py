"""Single sandboxes outside a job: for one command, or for programs with their own loop.

Sandboxes with the same spec share a provider, which closes with the last of them. So a thousand of
them use one connection to a cluster, as in a job.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from swe_rollout.sandbox.base import Role, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.worker import sandboxes

LIFETIME_S = 7200.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The sandbox that a program asks for."""

    image: str
    workdir: str = "/"
    """Folder of the image in which commands start."""
    lifetime_s: float = LIFETIME_S
    """The sandbox ends itself after this time, even if this process is killed."""
    harmless: bool = False
    """True if no model writes the commands; a local sandbox may then be a plain folder."""


class StandaloneSandbox:
    """A running sandbox and its share of the provider behind it."""

    def __init__(self, name: str, sandbox: Sandbox, shared: _Shared) -> None:
        self.id = name
        """A unique name; for pods, part of the pod's name and labels."""
        self.sandbox = sandbox
        self._shared = shared
        self._closing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """End the sandbox. Idempotent; a cancelled call still ends it."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self.sandbox.close()
        finally:
            await self._shared.release()


class _Shared:
    """The provider shared by all open sandboxes of one spec on one event loop."""

    def __init__(self, spec: SandboxSpec, first: Wanted, on_note: Callable[[str], None]) -> None:
        self.spec = spec
        self.harmless = first.harmless
        self._job = f"standalone-{secrets.token_hex(3)}"
        self._stack = AsyncExitStack()
        setup = sandboxes.SandboxSetup([_task(first)], self._job, on_note, harmless=first.harmless)
        self._provider: SandboxProvider = sandboxes.open_sandboxes(spec, setup, self._stack)
        self._users = 0
        self._started = 0

    async def start(self, wanted: Wanted) -> StandaloneSandbox:
        self._users += 1
        self._started += 1
        episode = EpisodeId(self._job, _task(wanted).instance_id, self._started)
        request = SandboxRequest(
            episode=episode,
            role=Role.AGENT,
            image=wanted.image,
            workdir=wanted.workdir,
            deadline_s=wanted.lifetime_s,
        )
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.release)
            sandbox = await self._provider.start(request)
            undo.pop_all()
        return StandaloneSandbox(f"{self._job}-{self._started}", sandbox, self)

    async def release(self) -> None:
        """Release one share; releasing the last one closes the provider."""
        self._users -= 1
        if self._users == 0:
            _providers().remove(self)
            await self._stack.aclose()


_PROVIDERS: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Shared]] = WeakKeyDictionary()


def _providers() -> list[_Shared]:
    return _PROVIDERS.setdefault(asyncio.get_running_loop(), [])


def _task(wanted: Wanted) -> Instance:
    return Instance(
        instance_id="command", problem_statement="", image=wanted.image, workdir=wanted.workdir
    )


def _no_note(note: str) -> None:
    del note  # The provider logs its warnings itself.


async def start_sandbox(
    spec: SandboxSpec, wanted: Wanted, *, on_note: Callable[[str], None] = _no_note
) -> StandaloneSandbox:
    """Start a sandbox that the caller closes. A failed or cancelled call leaves nothing behind.

    `on_note` is called with warnings for people. Raises SandboxError if this sandbox can't be
    started, PrerequisiteError or UnreachableError if no sandbox can be.
    """
    for shared in _providers():
        if (shared.spec, shared.harmless) == (spec, wanted.harmless):
            return await shared.start(wanted)
    shared = _Shared(spec, wanted, on_note)
    _providers().append(shared)
    return await shared.start(wanted)


@asynccontextmanager
async def open_sandbox(
    spec: SandboxSpec, wanted: Wanted, *, on_note: Callable[[str], None] = _no_note
) -> AsyncIterator[Sandbox]:
    """Start a sandbox and end it with the block. Raises the errors of `start_sandbox`."""
    started = await start_sandbox(spec, wanted, on_note=on_note)
    try:
        yield started.sandbox
    finally:
        await started.close()
