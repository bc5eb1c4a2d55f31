"""tinker-cookbook's `SandboxInterface` (0.6.1), and a factory for its Harbor recipe.

A lost sandbox raises tinker-cookbook's `SandboxTerminatedError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from tinker_cookbook.sandbox.sandbox_interface import SandboxResult, SandboxTerminatedError

from swe_rollout.errors import SandboxError
from swe_rollout.integrations.sandboxes.box import MAX_OUTPUT_BYTES, Box
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.worker.standalone import LIFETIME_S

_FAILED = 1


class Sandbox:
    """A sandbox that satisfies `SandboxInterface`. Use `create`."""

    def __init__(self, box: Box) -> None:
        """Use `create`."""
        self._box = box

    @classmethod
    async def create(
        cls,
        image: str,
        *,
        spec: SandboxSpec | Mapping[str, object] | None = None,
        workdir: str = "/",
        timeout: float = LIFETIME_S,
    ) -> Self:
        """Start a sandbox that lives for at most `timeout` seconds.

        `spec` is the `sandbox` of a job file, by default pods. Raises our SandboxError,
        PrerequisiteError or UnreachableError if it does not start.
        """
        box = Box(image, spec, workdir=workdir, lifetime_s=timeout)
        await box.start()
        return cls(box)

    @property
    def sandbox_id(self) -> str:
        """The sandbox's name."""
        return self._box.id

    async def send_heartbeat(self, timeout: int = 30) -> None:
        """Raise SandboxTerminatedError unless a command can run."""
        await self.run_command("true", workdir="/", timeout=timeout)

    async def run_command(
        self,
        command: str,
        workdir: str | None = None,
        timeout: int = 60,
        max_output_bytes: int | None = None,
    ) -> SandboxResult:
        """Run a script; exit code 124 if it ran out of time."""
        with _lost():
            result = await self._box.run(
                command, cwd=workdir, timeout_s=timeout, max_output=max_output_bytes
            )
        return SandboxResult(stdout=result.stdout, stderr=result.stderr, exit_code=result.exit_code)

    async def read_file(
        self,
        path: str,
        max_bytes: int | None = None,
        timeout: int = 60,
    ) -> SandboxResult:
        """Read the first `max_bytes` of a file; return head(1)'s exit code if it can't be read."""
        command = ["head", "-c", str(MAX_OUTPUT_BYTES if max_bytes is None else max_bytes)]
        with _lost():
            result = await self._box.run([*command, "--", path], timeout_s=timeout)
        return SandboxResult(stdout=result.stdout, stderr=result.stderr, exit_code=result.exit_code)

    async def write_file(
        self,
        path: str,
        content: str | bytes,
        executable: bool = False,
        timeout: int = 60,
    ) -> SandboxResult:
        """Create or replace a file, with missing parent folders."""
        del timeout  # The file's size determines its time limit.
        data = content.encode() if isinstance(content, str) else content
        try:
            with _lost():
                mode = 0o755 if executable else 0o644
                await self._box.sandbox.write_file(path, data, mode=mode)
        except OSError as error:
            return SandboxResult(stdout="", stderr=str(error), exit_code=_FAILED)
        return SandboxResult(stdout="", stderr="", exit_code=0)

    async def cleanup(self) -> None:
        """End the sandbox. Idempotent."""
        await self._box.close()


@contextmanager
def _lost() -> Iterator[None]:
    try:
        yield
    except SandboxError as error:
        raise SandboxTerminatedError(str(error)) from error
