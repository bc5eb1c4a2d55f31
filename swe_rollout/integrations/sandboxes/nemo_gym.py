"""NeMo-Gym's `SandboxProvider` (0.7.0): our sandboxes for its public sandbox API.

Register it with `nemo_gym.sandbox.register_provider("swe_rollout", Provider)`; a configuration then
names it as `{swe_rollout: {spec: {pod: {}}}}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)

from swe_rollout.errors import SweRolloutError
from swe_rollout.integrations.sandboxes.box import Box
from swe_rollout.integrations.sandboxes.transfer import download_file, upload_file
from swe_rollout.spec.sandbox import SandboxSpec as OurSpec
from swe_rollout.worker.standalone import LIFETIME_S

_NO_EXIT_CODE = 125
"""The return code beside an `error_type`, as of NeMo-Gym's own providers."""


class Provider:
    """Starts a sandbox for each handle."""

    name = "swe_rollout"

    def __init__(self, *, spec: OurSpec | Mapping[str, object] | None = None) -> None:
        """`spec` is the `sandbox` of a job file, by default pods. Raises UsageError."""
        self._spec = spec
        self._boxes: dict[str, Box] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a sandbox and write its files. Raises SandboxCreateError."""
        if spec.image is None or spec.entrypoint or spec.ports:
            raise SandboxCreateError(
                "a sandbox needs an image, and can have neither entrypoint nor ports"
            )
        box = Box(
            spec.image,
            self._spec,
            workdir=spec.workdir or "/",
            env=spec.env,
            lifetime_s=spec.ttl_s or LIFETIME_S,
        )
        async with AsyncExitStack() as failed:
            failed.push_async_callback(box.close)
            try:
                async with asyncio.timeout(spec.ready_timeout_s):
                    await box.start()
                    for path, text in spec.files.items():
                        await box.sandbox.write_file(path, text.encode())
            except (SweRolloutError, TimeoutError, OSError) as error:
                raise SandboxCreateError(f"no sandbox of {spec.image}: {error}") from error
            failed.pop_all()
        self._boxes[box.id] = box
        return SandboxHandle(sandbox_id=box.id, provider_name=self.name, raw=box)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a script; `error_type` is `timeout` if it ran out of time.

        Raises our SandboxError when the sandbox is lost.
        """
        box: Box = handle.raw
        result = await box.run(command, cwd=cwd, env=env, timeout_s=timeout_s, user=user)
        return SandboxExecResult(
            stdout=result.stdout,
            stderr=result.stderr,
            return_code=_NO_EXIT_CODE if result.timed_out else result.exit_code,
            error_type="timeout" if result.timed_out else None,
        )

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file of any size into the sandbox."""
        await upload_file(handle.raw.sandbox, source_path, target_path)

    async def download_file(
        self, handle: SandboxHandle, source_path: str, target_path: Path
    ) -> None:
        """Copy a file of any size out of the sandbox."""
        await download_file(handle.raw.sandbox, source_path, target_path)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return RUNNING while commands can run in it, then STOPPED."""
        alive = await handle.raw.is_alive()
        return SandboxStatus.RUNNING if alive else SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        """End a sandbox. Idempotent."""
        self._boxes.pop(handle.sandbox_id, None)
        await handle.raw.close()

    async def aclose(self) -> None:
        """End the sandboxes that are still open."""
        boxes, self._boxes = self._boxes, {}
        await asyncio.gather(*(box.close() for box in boxes.values()))
