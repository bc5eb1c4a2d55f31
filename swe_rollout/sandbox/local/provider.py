"""Sandboxes on this machine, from local images: in namespaces, or in plain directories."""

from __future__ import annotations

import asyncio
import errno
import posixpath
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from swe_rollout.errors import PrerequisiteError, SandboxError
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap, cgroups, machine, namespace
from swe_rollout.sandbox.local.checkout import Checkout
from swe_rollout.sandbox.local.folder import PROGRAM, ProviderFolder
from swe_rollout.sandbox.local.images import (
    PATH,
    LocalImage,
    Mount,
    Prepared,
    cache_dir,
    find_workdir,
    image_folder,
    load_image,
)
from swe_rollout.sandbox.local.namespace import Layout, Namespace
from swe_rollout.sandbox.local.pipe_channel import PipeChannel
from swe_rollout.sandbox.local.plain import Plain
from swe_rollout.sandbox.session.bootstrap import serve_arguments
from swe_rollout.sandbox.session.session import Session
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId


class Isolated:
    """Prepares sandboxes in namespaces for one provider."""

    def __init__(self, folder: ProviderFolder, limits: cgroups.Limits) -> None:
        """Write what every sandbox starts with; blocks."""
        content, point = folder.path / "content", folder.path / "point"
        point.mkdir()
        program = (folder.path / PROGRAM).read_bytes()
        namespace.fill(content, program, bubblewrap.configuration())
        parents = cgroups.find_parents()
        held = {controller for parent in parents for controller in parent.controllers}
        if missing := {"memory", "pids"} - held:
            # The limit is per process; docs/how-to/isolation.md says what remains possible.
            log.warning("limits_not_of_the_whole_sandbox", no_control_group_for=sorted(missing))
        cgroups.remove_orphans(parents)
        self._namespace = Namespace(point, content, limits, parents)
        self._overlaid = namespace.can_overlay(folder.path.parent)
        machine.shown()

    async def prepare(
        self, image: LocalImage, source: Path, workdir: str, *, networked: bool = False
    ) -> Prepared:
        mounts = {posixpath.normpath(m.target): source / m.source for m in image.mounts}
        find_workdir(workdir, mounts)
        layout = Layout.of(image, source, overlaid=self._overlaid)
        group = await self._make_group()
        env = {
            "PATH": f"{machine.interpreter_prefix()}/bin:{PATH}",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            **image.env,
        }
        inside = [
            *bubblewrap.arguments(layout.binds, env, networked=networked),
            *(bubblewrap.PROGRAM, *serve_arguments()),
        ]
        return Prepared(
            self._namespace.enter(inside, group=group, steps=layout.steps),
            {"PATH": PATH},
            workdir,
            clean_up=partial(asyncio.to_thread, group.remove),
            evidence=group.evidence,
        )

    async def _make_group(self) -> cgroups.Group:
        make = partial(cgroups.Group.make, self._namespace.parents, self._namespace.limits)
        making = asyncio.create_task(asyncio.to_thread(make))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            (made,) = await asyncio.gather(making, return_exceptions=True)
            if isinstance(made, cgroups.Group):
                await asyncio.to_thread(made.remove)
            raise
        except OSError as error:
            raise SandboxError(
                "no control group could be made for a sandbox",
                why=str(error),
                fix="another program may have taken away the right to make them: start again",
            ) from error


log = structlog.get_logger()
_DISK_TAKES_NOTHING = {
    errno.ENOSPC: "free space on its disk",
    errno.EDQUOT: "free space, or raise the quota of this user",
    errno.EROFS: "mount it for writing",
}
"""What helps against errors that every sandbox on the disk gets."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """What all sandboxes of an open provider share."""

    folder: ProviderFolder
    kind: Isolated | Plain
    checkout: Path | None = None
    """The folder that replaces every image."""


class LocalProvider:
    """Starts sandboxes on this machine."""

    def __init__(
        self, spec: LocalSandbox, *, harmless: bool = False, checkout: Checkout | None = None
    ) -> None:
        """Raises PrerequisiteError when sandboxes can't be isolated as the spec asks.

        `harmless` says that no model writes the commands, so plain directories will do. A
        `checkout` replaces every requested image.
        """
        refusal = "" if spec.isolation == "none" else bubblewrap.refusal()
        if refusal and (spec.isolation == "bubblewrap" or not harmless):
            raise PrerequisiteError(
                "sandboxes can't be isolated here",
                why=refusal,
                fix="apt-get install bubblewrap, and allow user namespaces. If you trust every "
                "command of the policy with all that you can read and change: "
                "sandbox: {local: {isolation: none}}",
            )
        for folder in spec.bundles.values():
            if not Path(folder).is_dir():
                raise PrerequisiteError(f"there is no folder {folder}, which is to be a bundle")
        self._isolated = spec.isolation != "none" and not refusal
        self._limits = cgroups.Limits.of(spec)
        self._gives_network = spec.network == "requested"
        self._images = Path(spec.images) if spec.images else None
        self._checkout = checkout
        self._bundles = tuple(
            Mount(str(Path(folder).absolute()), target, writable=False)
            for target, folder in spec.bundles.items()
        )
        self._opening: asyncio.Task[_Ground] | None = None
        self._channels: set[PipeChannel] = set()
        self.warning = "" if self._isolated else _isolation_warning(refusal)
        """Warning for users who run untrusted commands; empty when isolated."""
        if self.warning:
            log.warning("sandboxes_not_isolated", why=refusal or "isolation: none")

    async def start(self, request: SandboxRequest) -> Session:
        try:
            return await self._start(request)
        except OSError as error:
            if error.errno not in _DISK_TAKES_NOTHING:
                raise
            raise _takes_nothing(error) from error

    async def _start(self, request: SandboxRequest) -> Session:
        ground = await self._opened()
        image, source = self._image(request, ground)
        if request.role is Role.AGENT:
            image = replace(image, mounts=(*image.mounts, *self._bundles))
        prepared = await ground.kind.prepare(
            image,
            source,
            request.workdir,
            networked=request.wants_network and self._gives_network,
        )
        channel = await PipeChannel.start(
            prepared.command,
            env=prepared.env,
            at_end=partial(self._clean_up, prepared.clean_up),
            deadline_s=request.deadline_s,
            evidence=prepared.evidence,
        )
        self._channels.add(channel)
        session = await Session.open(channel, workdir=prepared.workdir, trees=prepared.trees)
        if request.snapshots:
            session.track()
        return session

    def require(self, images: Collection[str]) -> None:
        """Raise PrerequisiteError naming the `images` that are not on this machine."""
        absent = [
            image
            for image in sorted(images)
            if not (image_folder(image, self._images) / "image.json").exists()
        ]
        if absent:
            raise PrerequisiteError(
                f"{len(absent)} of {len(images)} images are not on this machine",
                why=", ".join(absent[:3])
                + (", …" if absent[3:] else "")
                + (f"; they are looked for in {self._images}" if self._images else ""),
                fix="use pods for images of a registry (`--sandbox pod`), or leave these tasks out",
            )

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        """Do nothing: a local sandbox starts in milliseconds."""

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        """Do nothing: a sandbox ends with its process, and the first start removes its folder."""

    async def aclose(self) -> None:
        """End the sandboxes that are still open and remove their folders."""
        await asyncio.gather(*(channel.close() for channel in tuple(self._channels)))
        opening, self._opening = self._opening, None
        if opening is not None:
            await asyncio.wait({opening})
            if opening.exception() is None:
                await asyncio.to_thread(opening.result().folder.close)

    def _image(self, request: SandboxRequest, ground: _Ground) -> tuple[LocalImage, Path]:
        if self._checkout is None or ground.checkout is None:
            return self._load(request.image)
        return self._checkout.image(request.image, request.workdir), ground.checkout

    def _load(self, name: str) -> tuple[LocalImage, Path]:
        try:
            return load_image(name, self._images)
        except PrerequisiteError as error:
            raise SandboxError(error.what, why=error.why, fix=error.fix, retryable=False) from error

    async def _opened(self) -> _Ground:
        """Open the provider on the first start; a cancelled start does not interrupt this."""
        failed = self._opening is not None and self._opening.done() and self._opening.exception()
        if self._opening is None or failed:
            self._opening = asyncio.create_task(asyncio.to_thread(self._open))
        return await asyncio.shield(self._opening)

    def _open(self) -> _Ground:
        folder = ProviderFolder(cache_dir() / "sandboxes")
        with ExitStack() as cleanup:
            cleanup.callback(folder.close)
            kind = Isolated(folder, self._limits) if self._isolated else Plain(folder)
            checkout = None
            if self._checkout is not None:
                checkout = folder.new()
                self._checkout.write(checkout)
            cleanup.pop_all()
        return _Ground(folder, kind, checkout)

    async def _clean_up(self, clean_up: Callable[[], Awaitable[None]]) -> None:
        self._channels = {channel for channel in self._channels if not channel.ended}
        await clean_up()


def _takes_nothing(error: OSError) -> SandboxError:
    """Build the error for a cache in which no sandbox has room. Its disk may be freed meanwhile."""
    folder = cache_dir()
    try:
        disk = shutil.disk_usage(folder)
        room = f", {disk.free >> 20} of {disk.total >> 20} MiB are free"
    except OSError:
        room = ""
    return SandboxError(
        f"{folder}, where local sandboxes are kept, takes no files",
        why=f"{error.strerror}{room}",
        fix=f"{_DISK_TAKES_NOTHING[error.errno or 0]}, or set XDG_CACHE_HOME to a folder of "
        "another disk",
    )


def _isolation_warning(why: str) -> str:
    return (
        f"sandboxes are plain directories ({why or 'isolation: none'}): commands of the policy "
        "can read and change everything you can, and /testbed does not exist. "
        "To isolate them: apt-get install bubblewrap"
    )
