"""slime's `Sandbox` (`slime/agent/sandbox.py`): `async with Sandbox(image) as sb`.

slime need not be installed: its protocol is structural. `exec` reports what a command does as (exit
code, stdout, stderr); with `check=True` a failed command raises RuntimeError, as slime's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from swe_rollout.integrations.sandboxes.box import OWN_USERS, Box
from swe_rollout.integrations.sandboxes.transfer import upload_file
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.worker.standalone import LIFETIME_S

_SHOWN = 400


class Sandbox:
    """A sandbox in place of slime's `E2BSandbox`."""

    def __init__(
        self,
        image: str,
        *,
        spec: SandboxSpec | Mapping[str, object] | None = None,
        workdir: str = "/",
        timeout: float = LIFETIME_S,
    ) -> None:
        """Request a sandbox of `image`, which lives for at most `timeout` seconds.

        `spec` is the `sandbox` of a job file, by default pods.
        """
        self._box = Box(image, spec, workdir=workdir, lifetime_s=timeout)

    @property
    def sandbox_id(self) -> str:
        """The sandbox's name; empty before it is started."""
        return self._box.id

    async def __aenter__(self) -> Self:
        """Start the sandbox."""
        await self._box.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """End the sandbox, without suppressing the block's exception."""
        await self._box.close()

    async def exec(
        self,
        cmd: str,
        *,
        user: str = "root",
        env: dict[str, str] | None = None,
        timeout: int = 120,
        check: bool = False,
        idempotent: bool = True,
    ) -> tuple[int, str, str]:
        """Run a script; exit code 124 if it ran out of time.

        A command is never run twice, so `idempotent` makes no difference.
        """
        del idempotent
        result = await self._box.run(cmd, user=user, env=env, timeout_s=timeout)
        if check and result.exit_code:
            raise RuntimeError(
                f"exit code {result.exit_code}: {cmd[:120]}\n{result.stderr[:_SHOWN]}"
            )
        return result.exit_code, result.stdout, result.stderr

    async def write_file(
        self, sandbox_path: str, content: str | bytes | Path, *, user: str = "root"
    ) -> None:
        """Create or replace a file; a `Path` is a file of this machine, of any size."""
        if isinstance(content, Path):
            await upload_file(self._box.sandbox, content, sandbox_path)
        else:
            data = bytes(content, "utf-8") if isinstance(content, str) else content
            await self._box.sandbox.write_file(sandbox_path, data)
        if user not in OWN_USERS:
            await self.exec(f"chown -- {shlex.quote(user)} {shlex.quote(sandbox_path)}", check=True)

    async def read_file(self, sandbox_path: str, *, user: str = "root") -> str:
        """Read a text file; empty if it does not exist, like slime's own. Raises SandboxError."""
        if user not in OWN_USERS:
            command = ["cat", "--", sandbox_path]
            result = await self._box.run(command, user=user)
            return "" if result.exit_code else result.stdout
        try:
            data = await self._box.sandbox.read_file(sandbox_path)
        except OSError:
            return ""
        return data.decode(errors="replace")
