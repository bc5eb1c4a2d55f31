"""Local sandboxes in namespaces, with limits."""

from __future__ import annotations

import asyncio
import posixpath
from functools import partial
from pathlib import Path

import structlog

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.local import bubblewrap, cgroups, machine, namespace
from swe_rollout.sandbox.local.cgroups import Group
from swe_rollout.sandbox.local.folder import PROGRAM, ProviderFolder
from swe_rollout.sandbox.local.images import LocalImage
from swe_rollout.sandbox.local.limits import Limits
from swe_rollout.sandbox.local.namespace import Layout, Namespace
from swe_rollout.sandbox.local.prepared import PATH, Prepared, missing_workdir
from swe_rollout.sandbox.session.bootstrap import serve_arguments

log = structlog.get_logger()


class Isolated:
    """Prepares sandboxes in namespaces. One for each provider."""

    def __init__(self, folder: ProviderFolder, limits: Limits) -> None:
        """Write what each sandbox starts with; blocks."""
        content, point = folder.path / "content", folder.path / "point"
        point.mkdir()
        program = (folder.path / PROGRAM).read_bytes()
        namespace.fill(content, program, bubblewrap.configuration())
        parents = cgroups.find_parents()
        held = {controller for parent in parents for controller in parent.controllers}
        if missing := {"memory", "pids"} - held:
            # For each process alone; docs/how-to/isolation.md says what then remains possible.
            log.warning("limits_not_of_the_whole_sandbox", no_control_group_for=sorted(missing))
        cgroups.remove_orphans(parents)
        self._namespace = Namespace(point, content, limits, parents)
        self._overlaid = namespace.can_overlay(folder.path.parent)
        machine.shown()

    async def prepare(
        self, image: LocalImage, source: Path, workdir: str, *, networked: bool = False
    ) -> Prepared:
        _check_workdir(workdir, image, source)
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

    async def _make_group(self) -> Group:
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


def _check_workdir(workdir: str, image: LocalImage, source: Path) -> None:
    """Check that the folder where commands start exists, if it lies in a mount of the image."""
    path = posixpath.normpath(workdir)
    for mount in sorted(image.mounts, key=lambda mount: -len(mount.target)):
        target = posixpath.normpath(mount.target)
        if path == target or path.startswith(target.rstrip("/") + "/"):
            if not (source / mount.source / path[len(target) :].lstrip("/")).is_dir():
                raise missing_workdir(workdir)
            return
