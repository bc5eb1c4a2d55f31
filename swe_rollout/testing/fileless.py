"""FilelessSandbox: what a sandbox in memory needs beside `exec`. For tests and benches of loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.sandbox.base import MAX_DOWNLOAD_BYTES, Sandbox

if TYPE_CHECKING:
    from pathlib import Path


class FilelessSandbox(Sandbox):
    """A sandbox in which there is no file and none can be made; `exec` is its maker's."""

    @property
    def workdir(self) -> str:
        """Where nothing is."""
        return "/testbed"

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        """Nothing is there: FileNotFoundError."""
        del max_bytes
        raise FileNotFoundError(path)

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Nothing is kept: PermissionError."""
        del data, mode
        raise PermissionError(path)

    async def upload(self, local: Path, path: str) -> None:
        """Nothing is kept: PermissionError."""
        del local
        raise PermissionError(path)

    async def download(
        self, path: str, local: Path, *, max_bytes: int = MAX_DOWNLOAD_BYTES
    ) -> None:
        """Nothing is there: FileNotFoundError."""
        del local, max_bytes
        raise FileNotFoundError(path)

    async def close(self) -> None:
        """Nothing is held."""
