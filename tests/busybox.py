"""A sandbox in which commands find busybox alone, as in the smallest images."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult, Sandbox

PROGRAM = shutil.which("busybox")


def install(folder: Path) -> Path:
    """Put busybox's programs into a folder and return it."""
    folder.mkdir()
    assert PROGRAM is not None
    names = subprocess.run([PROGRAM, "--list"], capture_output=True, text=True, check=True)
    for name in names.stdout.split():
        (folder / name).symlink_to(PROGRAM)
    return folder


@dataclass
class BusyboxSandbox(Sandbox):
    """Another sandbox, with a search path of its own."""

    outer: Sandbox
    programs: Path

    @property
    def workdir(self) -> str:
        return self.outer.workdir

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        shell = str(self.programs / "sh")
        words = [shell, "-c", command] if isinstance(command, str) else list(command)
        if words[0] == "/bin/sh":
            words[0] = shell
        return await self.outer.exec(
            words,
            cwd=cwd,
            env={**(env or {}), "PATH": str(self.programs)},
            stdin=stdin,
            timeout_s=timeout_s,
            max_output=max_output,
        )

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        return await self.outer.read_file(path, max_bytes=max_bytes)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self.outer.write_file(path, data, mode=mode)

    async def end_processes(self) -> None:
        await self.outer.end_processes()

    async def close(self) -> None:
        await self.outer.close()
