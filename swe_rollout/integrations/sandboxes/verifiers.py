"""verifiers' `Runtime` (0.4.0): a box for `Agent.run(runtime=…)`, over our sandboxes.

verifiers 0.4.0 only creates its own kinds of runtimes, by `config.type`; a borrowed runtime may be
of any class. Its record says `docker`, with the image, because the trace's type is closed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from verifiers.v1.errors import SandboxError as VerifiersSandboxError
from verifiers.v1.runtimes import DockerConfig, DockerRuntimeInfo
from verifiers.v1.runtimes.base import ProgramResult, Runtime

from swe_rollout.errors import SweRolloutError
from swe_rollout.integrations.sandboxes.box import Box
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.worker.standalone import LIFETIME_S

_BACKGROUND_S = 60.0


class SandboxRuntime(Runtime):
    """A sandbox. Use `async with provisioned(…)`, or `start` and `stop`."""

    is_local = False
    supports_user = True

    def __init__(
        self,
        image: str,
        *,
        spec: SandboxSpec | Mapping[str, object] | None = None,
        workdir: str = "/",
        lifetime_s: float = LIFETIME_S,
        name: str | None = None,
    ) -> None:
        """Request a sandbox of `image`; `spec` is the `sandbox` of a job file, by default pods."""
        super().__init__(name)
        self.config = DockerConfig(image=image, workdir=workdir)
        self.info = DockerRuntimeInfo(**self.config.model_dump())
        self._box = Box(image, spec, workdir=workdir, lifetime_s=lifetime_s)

    async def start(self) -> None:
        """Start the sandbox. Raises verifiers' SandboxError."""
        with _lost():
            await self._box.start()
        self.info.id = self._box.id

    async def teardown(self) -> None:
        """End the sandbox. Idempotent. If this process dies first, the deadline ends it."""
        await self._box.close()

    async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run a program until it ends or the call is cancelled, which kills it."""
        with _lost():
            result = await self._box.run(argv, env=self.process_env(env), user=self.user)
        return ProgramResult(result.exit_code, result.stdout, result.stderr)

    async def run_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
        """Start a program that lives until the sandbox ends."""
        script = f"{shlex.join(argv)} >{shlex.quote(log)} 2>&1 </dev/null &"
        with _lost():
            await self._box.run(
                script, env=self.process_env(env), user=self.user, timeout_s=_BACKGROUND_S
            )

    async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None:
            data: bytes = await super()._read(path, max_bytes)
            return data
        with _lost():
            return await self._box.sandbox.read_file(path, max_bytes=1 << 30)

    async def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, with missing parent folders."""
        with _lost():
            await self._box.sandbox.write_file(path, data)


@contextmanager
def _lost() -> Iterator[None]:
    """Turn our errors and those of files into verifiers' SandboxError, recorded with its owner."""
    try:
        yield
    except (SweRolloutError, OSError) as error:
        raise VerifiersSandboxError(str(error)) from error
