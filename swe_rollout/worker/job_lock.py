"""Let one process of a machine run a job at a time: a lock that the kernel drops with its holder.

<cache>/jobs/<digest of the job's address>.lock    who runs it: process id, and since when
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import structlog

from swe_rollout.errors import UsageError
from swe_rollout.sandbox.local.images import cache_dir
from swe_rollout.spec.job import RolloutJob
from swe_rollout.store.address import PROVIDERS

log = structlog.get_logger()
_LONGEST = 100
"""Bytes read of who holds a lock."""


@asynccontextmanager
async def running_here(job: RolloutJob, *, join: bool) -> AsyncIterator[bool]:
    """Hold the job's lock; yield whether another process of this machine runs the job, too.

    Raises UsageError, naming that process, unless `join` is true. On a machine where no lock can be
    kept, the job runs without: each episode is committed once all the same.
    """
    lock: int | None = None
    try:
        lock = _take(_path(job))
    except BlockingIOError:
        if not join:
            raise _held(job) from None
    except OSError as error:
        log.warning("job_not_locked", why=str(error), fix="set XDG_CACHE_HOME to a local folder")
        join = False
    try:
        yield join and lock is None
    finally:
        if lock is not None:
            _path(job).unlink(missing_ok=True)
            os.close(lock)


def _take(path: Path) -> int:
    """Create and lock a file. Raises BlockingIOError if another process holds its lock."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before removes the file: a lock on a removed one holds nobody off.
            if _is_at(path, lock):
                os.ftruncate(lock, 0)
                now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
                os.pwrite(lock, f"process {os.getpid()}, since {now}".encode(), 0)
                return lock
        except OSError:
            os.close(lock)
            raise
        os.close(lock)


def _is_at(path: Path, lock: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def _held(job: RolloutJob) -> UsageError:
    uri, name = job.spec.store.uri, job.metadata.name
    try:
        with _path(job).open("rb") as file:
            holder = file.read(_LONGEST).decode("ascii", "replace")
    except OSError:
        holder = ""  # it has just ended
    return UsageError(
        f"{name} is being run on this machine already",
        why=holder or "by another process",
        fix=f"wait for its end (`swe-rollout status {uri}/{name}` shows it), stop it with ^C, or "
        "take part in it with --join (`job.run(join=True)`)",
    )


def _path(job: RolloutJob) -> Path:
    scheme, _, rest = job.spec.store.uri.partition("://")
    where = [os.path.realpath(rest)] if scheme == "file" else [scheme, rest.rstrip("/")]
    if (provider := PROVIDERS.get(scheme)) is not None:
        where += [os.environ.get(name, "") for name in provider.endpoints]
    address = "\n".join([*where, job.metadata.name])
    return cache_dir() / "jobs" / f"{hashlib.sha256(address.encode()).hexdigest()[:32]}.lock"
