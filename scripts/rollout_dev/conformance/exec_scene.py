"""The scene of a case of `conformance exec`: a client at a pod, and a proxy that breaks things."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from rollout_dev.exec_clients import ours
from rollout_dev.exec_clients.base import (
    ClientTarget,
    CommandResult,
    Runner,
    Site,
    add_kubeconfig,
    open_site,
)
from rollout_dev.exec_clients.catalog import Peer
from rollout_dev.faults.exec_proxy import ExecProxy
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES
from swe_rollout.sandbox.pods import pod_spec
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod
from swe_rollout.sandbox.session.session import Session

_BUGS = (ValueError, KeyError, TypeError, IndexError, AttributeError, UnicodeError)
"""Exceptions of a client that could not handle its input, which do not report the fault."""


class Needs(Enum):
    """The environment of a case."""

    POD = auto()
    """A pod that other cases share."""
    PROXY = auto()
    """A proxy before the API server, which breaks connections."""
    OWN_POD = auto()
    """A pod of its own, which will not survive."""


class Mark(StrEnum):
    """The verdict of a cell."""

    RIGHT = "right"
    WRONG = "wrong"
    NONE = "n/a"


@dataclass(frozen=True, slots=True)
class Cell:
    """One case of one client."""

    mark: Mark
    detail: str = ""
    """The client's behaviour, if it was not right."""


RIGHT = Cell(Mark.RIGHT)


def wrong(detail: str) -> Cell:
    """Make a cell for wrong behaviour."""
    return Cell(Mark.WRONG, detail[:160])


def none(detail: str) -> Cell:
    """Make a cell for a feature that a client does not have."""
    return Cell(Mark.NONE, detail)


def right_if(true: object, detail: str) -> Cell:
    """Make a right cell if `true`, else a wrong one with `detail`."""
    return RIGHT if true else wrong(detail)


@dataclass(frozen=True, slots=True)
class Trial:
    """A finished command: its result or its error."""

    took_s: float
    outcome: CommandResult | None
    error: BaseException | None

    def __str__(self) -> str:
        if self.outcome is None:
            return f"{type(self.error).__name__}: {self.error} after {self.took_s:.0f} s"
        found = self.outcome
        code = "no exit code" if found.exit_code is None else f"exit code {found.exit_code}"
        late = ", timed out" if found.timed_out else ""
        return f"{code}{late}, stdout {_short(found.stdout)} after {self.took_s:.0f} s"

    @property
    def reported(self) -> bool:
        """Whether an error says that something other than the command failed."""
        return self.error is not None and not isinstance(self.error, _BUGS)

    @property
    def gave_up(self) -> bool:
        """Whether it stopped waiting, and reported it."""
        return self.reported or (self.outcome is not None and self.outcome.timed_out)

    def exited(self, *codes: int) -> bool:
        """Whether it ended with one of these codes."""
        return self.outcome is not None and self.outcome.exit_code in codes

    def printed(self, stdout: bytes) -> bool:
        """Whether it succeeded with exactly this output; if capped, with its first bytes."""
        found = self.outcome
        if found is None or found.timed_out or found.exit_code not in (0, None):
            return False
        capped = found.stdout_bytes == len(stdout) and len(found.stdout) == MAX_OUTPUT_BYTES
        return found.stdout == (stdout[:MAX_OUTPUT_BYTES] if capped else stdout)


@dataclass(frozen=True, slots=True)
class Scene:
    """One client at one pod."""

    runner: Runner
    is_ours: bool
    site: Site
    pod: str
    folder: str
    """A path in the pod: the prefix of file names of this case."""
    control: Session
    """A direct session into the pod, to inspect it."""
    proxy: ExecProxy | None

    async def sh(
        self, script: str, *arguments: str, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Trial:
        """Run a script of POSIX sh."""
        argv = ("/bin/sh", "-c", script, "sh", *arguments)
        return await self.run(argv, stdin=stdin, timeout_s=timeout_s)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Trial:
        """Run a program."""
        started = time.monotonic()
        running = self.runner.run(argv, stdin=stdin, timeout_s=timeout_s)
        (found,) = await asyncio.gather(running, return_exceptions=True)
        took_s = time.monotonic() - started
        if isinstance(found, CommandResult):
            return Trial(took_s, found, None)
        return Trial(took_s, None, found)

    async def while_running(
        self,
        script: str,
        *arguments: str,
        then: Callable[[ExecProxy], Awaitable[None] | None],
        timeout_s: float = 30.0,
    ) -> Trial:
        """Run a script, and call `then` a second after its start."""
        task = asyncio.create_task(self.sh(script, *arguments, timeout_s=timeout_s))
        try:
            await asyncio.sleep(1.0)
            if (going_on := then(self.faults)) is not None:
                await going_on
            return await task
        finally:
            task.cancel()

    async def look(self, script: str, *arguments: str) -> str:
        """Run a script without the client and return its output."""
        argv = ("/bin/sh", "-c", script, "sh", *arguments)
        return (await self.control.exec(argv)).stdout.decode(errors="replace")

    @property
    def faults(self) -> ExecProxy:
        """The proxy between the client and the API server."""
        if self.proxy is None:
            raise RuntimeError("the case does not need a proxy")
        return self.proxy


def _short(data: bytes) -> str:
    return repr(data) if len(data) <= 40 else f"of {len(data)} bytes"  # noqa: PLR2004


MEMORY = "128Mi"
"""Enough for a supervisor, little enough to exhaust quickly."""
_FIND_FOLDER = """\
for d in /tmp /var/tmp /dev/shm /run "$HOME"; do
    (: >"$d/.swe-rollout-probe") 2>/dev/null && rm "$d/.swe-rollout-probe" && echo "$d" && break
done
"""


@dataclass(frozen=True, slots=True)
class _SharedPod:
    """The pod that a client's harmless cases share."""

    pod: RunningPod
    control: Session


@dataclass(slots=True)
class Stage:
    """Makes scenes in one namespace."""

    site: Site
    image: str
    notes: list[str]
    _provider: PodProvider
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _shared: dict[str, _SharedPod] = field(default_factory=dict)

    async def scene(self, peer: Peer | None, needs: Needs, stack: AsyncExitStack) -> Scene:
        """Set up a scene for one case, which ends with the stack."""
        proxy, context, config = None, self.site.context, str(self.site.kubeconfig)
        if needs is Needs.PROXY:
            proxy = await stack.enter_async_context(ExecProxy(self.site.client.transport.access))
            path = self.site.folder / f"proxied-{proxy.port}"
            context = proxy.write_kubeconfig(path, namespace=self.site.namespace)
            config = str(path)
            add_kubeconfig(path)
        is_alone = needs is Needs.OWN_POD or (peer is None and needs is Needs.PROXY)
        home = await (self._fresh(context, stack) if is_alone else self._shared_pod(peer))
        folder = (await home.control.exec(("/bin/sh", "-c", _FIND_FOLDER))).stdout.decode().strip()
        runner: Runner = ours.Ours(home.pod)
        if peer is not None:
            namespace, pod = self.site.namespace, home.pod.name
            runner = peer.bind(ClientTarget(config, context, namespace, pod, pod_spec.CONTAINER))
            stack.push_async_callback(runner.aclose)
        return Scene(
            runner=runner,
            is_ours=peer is None,
            site=self.site,
            pod=home.pod.name,
            folder=f"{folder}/case-{next(self._numbers)}",
            control=home.control,
            proxy=proxy,
        )

    async def _shared_pod(self, peer: Peer | None) -> _SharedPod:
        name = peer.name if peer else ""
        if name not in self._shared:
            self._shared[name] = await self._start(self._provider)
        return self._shared[name]

    async def _fresh(self, context: str, stack: AsyncExitStack) -> _SharedPod:
        provider = await stack.enter_async_context(
            ours.provider(self.site, context=context, memory=MEMORY)
        )
        home = await self._start(provider)
        stack.push_async_callback(home.control.close)
        return home

    async def _start(self, provider: PodProvider) -> _SharedPod:
        pod = await ours.start(provider, self.image, number=next(self._numbers))
        control = await ours.bare_session(self.site.client, self.site.namespace, pod.name)
        return _SharedPod(pod, control)

    async def aclose(self) -> None:
        """Close the sessions into the shared pods."""
        for home in self._shared.values():
            await home.control.close()


@asynccontextmanager
async def open_stage(kubeconfig: str | None, image: str) -> AsyncIterator[Stage]:
    """Open a stage in a namespace of its own, given the right to create one."""
    async with open_site(kubeconfig, prefix="conformance-exec-", images=(image,)) as site:
        note = await ours.without_policy_if_forbidden(site)
        async with ours.provider(site, memory=MEMORY) as provider:
            stage = Stage(site, image, [note] if note else [], provider)
            try:
                yield stage
            finally:
                await stage.aclose()
