"""Files and folders between this machine and a sandbox, in pieces, whatever their size.

Folders travel as tar archives. Anything from a sandbox is untrusted: no path may leave the target
folder, and the size is bounded before anything is unpacked.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.text.paths import unused_name

_PIECE_BYTES = 8 << 20
_PIECE_S = 300.0
_PACK_S = 1800.0
MAX_BYTES = 16 << 30
"""The most bytes that one transfer takes out of a sandbox."""
_MAX_FILES = 1_000_000


async def upload_file(sandbox: Sandbox, source: Path, target: str) -> None:
    """Copy a file of this machine into the sandbox, with its executable bit.

    The target appears once it is complete. Raises OSError for the source, SandboxError otherwise.
    """
    mode = 0o755 if os.access(source, os.X_OK) else 0o644
    with await asyncio.to_thread(source.open, "rb") as file:
        piece = await asyncio.to_thread(file.read, _PIECE_BYTES)
        if len(piece) < _PIECE_BYTES:
            await sandbox.write_file(target, piece, mode=mode)
            return
        part = f"{target}.{secrets.token_hex(4)}.part"
        async with AsyncExitStack() as failed:
            failed.push_async_callback(lambda: asyncio.shield(_remove(sandbox, part)))
            await sandbox.write_file(part, b"", mode=mode)
            while piece:
                script = f"cat >> {shlex.quote(part)}"
                _check(await sandbox.exec(script, stdin=piece, timeout_s=_PIECE_S), target)
                piece = await asyncio.to_thread(file.read, _PIECE_BYTES)
            _check(await sandbox.exec(["mv", "-f", "--", part, target]), target)
            failed.pop_all()


async def download_file(sandbox: Sandbox, source: str, target: Path) -> None:
    """Copy a file of the sandbox to this machine. The target appears once it is complete.

    Raises FileNotFoundError and the like for the source, SandboxError when the sandbox is lost or
    the file is larger than `MAX_BYTES`.
    """
    await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
    part = unused_name(target)
    try:
        with await asyncio.to_thread(part.open, "wb") as file:
            async for piece in _pieces(sandbox, source):
                await asyncio.to_thread(file.write, piece)
        await asyncio.to_thread(part.replace, target)
    finally:
        await asyncio.to_thread(part.unlink, missing_ok=True)


async def upload_folder(sandbox: Sandbox, source: Path, target: str) -> None:
    """Copy the content of a folder of this machine into a folder of the sandbox; create it."""
    remote = _archive_path()
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "files.tar"
        await asyncio.to_thread(_pack, source, archive)
        try:
            await upload_file(sandbox, archive, remote)
            script = f'mkdir -p -- "$1" && tar -xf {remote} -C "$1"'
            command = ["/bin/sh", "-c", script, "sh", target]
            _check(await sandbox.exec(command, timeout_s=_PACK_S), target)
        finally:
            await asyncio.shield(_remove(sandbox, remote))


async def download_folder(sandbox: Sandbox, source: str, target: Path) -> None:
    """Copy the content of a sandbox's folder into a folder of this machine; create that folder.

    Devices, pipes and links that lead out of the folder are left out.
    """
    remote = _archive_path()
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "files.tar"
        try:
            command = ["tar", "-cf", remote, "-C", source, "."]
            _check(await sandbox.exec(command, timeout_s=_PACK_S), source)
            await download_file(sandbox, remote, archive)
        finally:
            await asyncio.shield(_remove(sandbox, remote))
        await asyncio.to_thread(_unpack, archive, target)


async def _pieces(sandbox: Sandbox, source: str) -> AsyncIterator[bytes]:
    """Read a file from beginning to end, even if it is growing."""
    size = await sandbox.exec(["/bin/sh", "-c", 'test -f "$1" && wc -c <"$1"', "sh", source])
    if not size.ok or int(size.stdout) < _PIECE_BYTES:
        yield await sandbox.read_file(source)  # This also raises what is wrong with the file.
        return
    for number in range(MAX_BYTES // _PIECE_BYTES):
        words = [f"if={source}", f"bs={_PIECE_BYTES}", "count=1", f"skip={number}"]
        result = await sandbox.exec(["dd", *words], timeout_s=_PIECE_S, max_output=_PIECE_BYTES)
        _check(result, source)
        yield result.stdout
        if len(result.stdout) < _PIECE_BYTES:
            return
    raise _too_large(source)


def _archive_path() -> str:
    """Return a new path for an archive in the sandbox."""
    return f"/tmp/swe-rollout-{secrets.token_hex(6)}.tar"  # noqa: S108 - the sandbox's own


def _pack(source: Path, archive: Path) -> None:
    if not source.is_dir():
        raise NotADirectoryError(f"{source} is no folder")
    with tarfile.open(archive, "w") as tar:
        tar.add(source, arcname=".", filter=_nameless)


def _nameless(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Drop the owners of the files on this machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _unpack(archive: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive, "r:") as tar:
            size = 0
            for number, member in enumerate(tar):
                size += member.size
                if size > MAX_BYTES or number > _MAX_FILES:
                    raise _too_large(str(target))
            tar.extractall(target, filter=_safe)  # noqa: S202 - the filter keeps it in
    except (tarfile.TarError, ValueError, KeyError, EOFError, OSError) as error:
        # This includes names that are impossible in this machine's folders.
        raise SandboxError("the sandbox's archive can't be read", why=str(error)) from error


def _safe(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    known = member.isreg() or member.isdir() or member.issym() or member.islnk()
    if not known or ".." in member.name.split("/"):
        return None
    try:
        return tarfile.data_filter(member, folder)
    except tarfile.FilterError:
        return None


def _too_large(what: str) -> SandboxError:
    return SandboxError(
        f"{what} is too large to copy",
        why=f"it has more than {MAX_BYTES >> 30} GiB or {_MAX_FILES:,} files",
        retryable=False,
    )


def _check(result: ExecResult, path: str) -> None:
    if not result.ok:
        why = "it took too long" if result.timed_out else result.stderr.decode(errors="replace")
        raise SandboxError(
            f"{path} can't be copied",
            why=why.strip() or f"exit code {result.exit_code}",
            fix="look at the disk space of the sandbox, and whether its image has tar",
            retryable=False,
        )


async def _remove(sandbox: Sandbox, path: str) -> None:
    with suppress(SandboxError):  # The sandbox is lost, and the file with it.
        await sandbox.exec(["rm", "-f", "--", path], timeout_s=60.0)
