"""Create, fill and remove the folders of local sandboxes, and clean up after a crash.

<cache>/sandboxes/<pid>-<start>-<random>/    one provider
    lock                                     held while the provider lives
    supervisor                               the program that each sandbox runs
    <random>/                                one sandbox
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.session import bootstrap

log = structlog.get_logger()
FOLDER_NAME = re.compile(r"\d+-\d+-[0-9a-z_]{8}")
"""Names of providers' folders, and of folders used to try out overlays."""
PROGRAM = "supervisor"
"""Name of the supervisor's program, beside the folders of sandboxes."""
# Owners are not kept: inside the sandbox, all files belong to its only user.
_COPY = (
    "cp",
    "-a",
    *(("--reflink=auto", "--no-preserve=ownership") if sys.platform == "linux" else ()),
)


class ProviderFolder:
    """One provider's folder of sandboxes. Its lock shows other processes that it is in use."""

    def __init__(self, root: Path) -> None:
        """Remove the folders of dead providers under `root`, and create one for this provider."""
        subprocess.run(["rm", "-f"], check=False)  # fail now, not when episodes have been played
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        delete_orphans(root)
        own = f"{own_name()}-{secrets.token_hex(4)}"
        self.path = root / own
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        program = self.path / PROGRAM
        program.write_bytes(bootstrap.program(platform.machine()))
        program.chmod(0o755)

    def new(self) -> Path:
        """Create an empty folder for one sandbox."""
        folder = self.path / secrets.token_hex(4)
        folder.mkdir()
        return folder

    def close(self) -> None:
        """Remove the folder and release the lock."""
        remove(self.path)
        os.close(self._lock)


def delete_orphans(root: Path) -> None:
    """Remove the folders of providers whose process has died."""
    for folder in orphans(root):
        log.info("leftover_sandboxes_removed", folder=str(folder))
        remove(folder)


def orphans(root: Path) -> Iterator[Path]:
    """Yield this user's provider folders whose process has died."""
    if not root.is_dir():
        return
    for folder in root.iterdir():
        is_ours = FOLDER_NAME.fullmatch(folder.name) and folder.lstat().st_uid == os.geteuid()
        if is_ours and is_orphan(folder):
            yield folder


def is_orphan(folder: Path) -> bool:
    """Return whether the provider of a folder, which may be gone, has died.

    A live provider holds its lock, which also works across containers that share a cache. Between
    creating and locking the folder, the provider is identified by its process id and start time.
    """
    return has_ended(folder.name.rpartition("-")[0]) and not _is_locked(folder / "lock")


def remove(folder: Path) -> None:
    """Remove a folder, whatever permissions its files have."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if folder.exists():
            subprocess.run([*command, "--", folder], check=False, stderr=subprocess.DEVNULL)


async def copy(source: Path, target: Path) -> None:
    """Copy a folder's content with modes, times and links; share blocks where possible."""
    process = await asyncio.create_subprocess_exec(
        *_COPY, f"{source}/.", str(target), stderr=asyncio.subprocess.PIPE
    )
    try:
        _, message = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        raise SandboxError(
            f"copying {source} failed",
            why=message.decode("utf-8", "replace").strip()[-500:],
            fix="look at the disk space of the cache folder (set XDG_CACHE_HOME to move it)",
        )


def _is_locked(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def own_name() -> str:
    """Return this process's id and start time, as a name for what it owns."""
    return f"{os.getpid()}-{_started(os.getpid()) or 0}"


def has_ended(name: str) -> bool:
    """Return whether the process that made this name has ended."""
    pid, _, started = name.partition("-")
    return not pid.isdecimal() or _started(int(pid)) != started


def _started(pid: int) -> str | None:
    """Return a process's start time in ticks since boot, which tells reused ids apart."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]
