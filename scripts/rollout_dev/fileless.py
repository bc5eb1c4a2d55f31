"""A sandbox in memory without files, for tests and benchmarks of the agent loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult, Sandbox

BASE = b"c0ffee"
"""The output of the harness's own scripts: the base commit, and the diff."""


class FilelessSandbox(Sandbox):
    """A sandbox without files; subclasses implement `exec`."""

    @property
    def workdir(self) -> str:
        return "/testbed"

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """Raise FileNotFoundError: there are no files."""
        del max_bytes
        raise FileNotFoundError(path)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Raise PermissionError: no files are kept."""
        del data, mode
        raise PermissionError(path)

    async def end_processes(self) -> None:
        """Do nothing: no command leaves a process."""

    async def close(self) -> None:
        """Do nothing: no resources are held."""


class PrintingSandbox(FilelessSandbox):
    """Prints one text for every command, and a base for the harness's own, which set variables."""

    def __init__(self, output: bytes) -> None:
        self._output = output

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
        """Print the fixed output."""
        del command, cwd, stdin, timeout_s, max_output
        output = BASE if env else self._output
        return ExecResult(0, output, b"", stdout_bytes=len(output))
