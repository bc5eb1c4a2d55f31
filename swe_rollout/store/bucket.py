"""Bucket: bytes under keys, in a folder or in object storage.

A missing object is a FileNotFoundError; every other error becomes one of `swe_rollout.errors`.
`layout` defines the keys. Dataset files and user code are accessed by their full address.

Calls run on threads that Python itself started. obstore's own futures complete on threads of its
runtime, which may take the GIL at any time: doing so while the interpreter shuts down aborts the
process (with exit code 134 or 135 instead of the real one). Pool threads are joined before that, so
a script ends after its last call. The command line does not wait that long: see `wait_until_idle`.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

from obstore.exceptions import BaseError
from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from swe_rollout.errors import UnreachableError, UsageError
from swe_rollout.store.address import advice_for, open_storage, require_short
from swe_rollout.store.faults import (
    OF_ONE_FILE,
    fault_of,
    fix_of_folder,
    is_missing_object,
    is_transient,
    reason,
)
from swe_rollout.store.objects import FolderObjects, StorageObjects
from swe_rollout.text.paths import why_missing
from swe_rollout.types.retrying import retried

T = TypeVar("T")

_THREADS = 32
_changed = threading.Condition()
_in_flight: set[int] = set()
_obstore_used = threading.Event()
_obstore_lost = threading.Event()


async def run_call(work: Callable[[], T]) -> T:
    """Return the result of `work`, run on a thread of the pool.

    A cancelled caller continues at once. A started call can't be stopped; its result is ignored.
    """
    return await asyncio.wrap_future(_submit(work))


def wait_until_idle(timeout_s: float) -> bool:
    """Wait for the calls in flight; return whether all have ended.

    A process with calls in flight can exit at once only by `os._exit`.
    """
    deadline = time.monotonic() + timeout_s
    with _changed:
        while _in_flight:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            _changed.wait(left_s)
    return True


def _submit(work: Callable[[], T]) -> Future[T]:
    future = _pool().submit(work)
    with _changed:
        _in_flight.add(id(future))
    future.add_done_callback(_ended)
    return future


def _ended(future: Future[T]) -> None:
    with _changed:
        _in_flight.discard(id(future))
        _changed.notify_all()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="store")


def _start_anew() -> None:
    """Forget the threads and calls of the parent, which a fork has not: it would wait for ever."""
    global _changed  # noqa: PLW0603 - a thread of the parent may have held it
    _changed = threading.Condition()
    _in_flight.clear()
    _pool.cache_clear()
    if _obstore_used.is_set():
        _obstore_lost.set()


def _use_obstore(uri: str) -> None:
    """Raise UsageError in a fork of a process that used obstore, whose calls would never return."""
    if _obstore_lost.is_set():
        raise UsageError(
            f"{uri} can't be used in this process",
            why="it was forked from one that had used a store, and threads don't survive a fork",
            fix="start processes by spawn or forkserver (multiprocessing.get_context), or use "
            "stores only after the fork",
        )
    _obstore_used.set()


os.register_at_fork(after_in_child=_start_anew)


CallListener: TypeAlias = "Callable[[str, UnreachableError | None], None]"
"""Called with a kind of call, such as `write`, and its error, or None if it succeeded."""

_FILE = "file://"
_ATTEMPTS = 5
_RETRY_S = 60
SLOW_S = 30.0
"""Longer calls are reported while they are in progress."""
_PROBE_BYTES = 1 << 20
"""The largest create that is used to test whether a storage honours conditions."""


class Bucket:
    """A flat map from keys to bytes at an address. Calls that may succeed later are retried."""

    def __init__(self, uri: str, objects: FolderObjects | StorageObjects) -> None:
        self.uri = uri
        self._objects = objects
        self._listener: CallListener = lambda *_: None

    @classmethod
    def open(cls, uri: str) -> Self:
        """Open the bucket at `uri`; nothing is contacted or created yet.

        `file:///absolute`, `file://relative/to/cwd`, `s3://bucket/prefix`, `gs://bucket/prefix` or
        `az://container/prefix`; credentials and endpoint come from the environment. Raises
        UsageError and PrerequisiteError.
        """
        require_short(uri)
        if uri.startswith(_FILE):
            return cls(uri, FolderObjects(Path(uri.removeprefix(_FILE)).absolute()))
        return cls(uri, StorageObjects(open_storage(uri)))

    def observe(self, listener: CallListener) -> None:
        """Notify `listener` of the outcome of each call from now on, and of very slow calls."""
        self._listener = listener

    async def get(self, key: str) -> bytes:
        """Return the object's bytes. Raises FileNotFoundError if there is none."""
        return await self._call("read", key, lambda: self._objects.read(key))

    async def create(self, key: str, data: bytes) -> bool:
        """Write the object unless there is one; return whether it was written.

        Atomic: by a staged file and a hard link in a folder, by a condition of the request in
        object storage (`If-None-Match: *`, for Google generation 0). Raises UsageError when the
        storage ignores it.
        """
        try:
            written = await self._call("write", key, lambda: self._objects.create(key, data))
        except FileNotFoundError as error:
            raise self._unreachable("write", key, error) from error
        if written and not self._objects.conditional and len(data) <= _PROBE_BYTES:
            await self._check_condition(key, data)
        return written

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """List the keys under the folder `prefix`, unordered and without staged files.

        Only a page of them is held, and only a page is asked for again if a request fails.
        """
        pages, last = self._objects.pages(prefix), list[str]()

        def next_page() -> list[str]:
            nonlocal pages
            try:
                return next(pages, [])
            except BaseError:  # object storage, which lists in order
                pages = self._objects.pages(prefix, last[-1] if last else None)
                raise

        while page := await self._call("list", prefix, next_page):
            last = page
            for key in page:
                yield key

    async def folders(self) -> tuple[str, ...]:
        """Return the names of the top-level folders, sorted."""
        return tuple(sorted(await self._call("list", "", self._objects.folders)))

    async def written_at(self, key: str) -> datetime:
        """Return when the object was written. Raises FileNotFoundError."""
        return await self._call("read", key, lambda: self._objects.written_at(key))

    async def move(self, key: str, to: str) -> None:
        """Move an object to an unused key. Raises FileNotFoundError."""
        await self._call("move", key, lambda: self._objects.move(key, to))

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. Missing ones are not an error."""
        if keys:
            await self._call("delete", keys[0], lambda: self._objects.delete(keys))

    def why_missing(self, key: str) -> str:
        """Describe what is missing: the bucket's folder, or the object itself."""
        is_folder = isinstance(self._objects, FolderObjects)
        missing = is_folder and why_missing(Path(self.uri.removeprefix(_FILE)) / "object")
        return missing or f"{key} does not exist"

    async def _check_condition(self, key: str, data: bytes) -> None:
        """Create the object just written again, unchanged, which the storage must refuse."""
        if await self._call("write", key, lambda: self._objects.create(key, data)):
            raise UsageError(
                f"{self.uri} can't be a store",
                why="it replaces objects although the request forbids it (If-None-Match: *), so "
                "two workers could commit the same episode",
                fix="use a server with conditional writes (docs/how-to/stores.md)",
            )
        self._objects.conditional = True

    async def _call(self, verb: str, key: str, work: Callable[[], T]) -> T:
        """Run `work`, retrying while that may help.

        Raises UnreachableError for whatever the storage raises, except a missing object.
        """
        if verb == "write" or isinstance(self._objects, StorageObjects):
            _use_obstore(self.uri)
        slow = asyncio.get_running_loop().call_later(SLOW_S, self._is_slow, verb, key)
        try:
            result = await retried(lambda: run_call(work), _retrying)
        except FileNotFoundError as error:
            if is_missing_object(error):
                self._listener(verb, None)
                raise
            raise self._failed(verb, key, error) from error
        except (BaseError, OSError) as error:
            raise self._failed(verb, key, error) from error
        finally:
            slow.cancel()
        self._listener(verb, None)
        return result

    def _is_slow(self, verb: str, key: str) -> None:
        error = UnreachableError(
            f"the store takes long to {verb} {self.uri}/{key}",
            why=f"no response for {SLOW_S:g} s",
            fix="look at the storage, and at the network between it and this machine",
        )
        self._listener(verb, error)

    def _failed(self, verb: str, key: str, error: Exception) -> UnreachableError:
        unreachable = self._unreachable(verb, key, error)
        if verb != "read" or not isinstance(error, OF_ONE_FILE):
            self._listener(verb, unreachable)
        return unreachable

    def _unreachable(self, verb: str, key: str, error: Exception) -> UnreachableError:
        what = f"the store can't {verb} {self.uri}/{key}"
        if not self.uri.startswith(_FILE):
            fault = fault_of(error, advice_for(self.uri, verb))
            return UnreachableError(what, why=fault.why, fix=fault.fix)
        return UnreachableError(what, why=reason(error), fix=fix_of_folder(error))


def _retrying() -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_attempt(_ATTEMPTS) | stop_after_delay(_RETRY_S),
        wait=wait_random_exponential(multiplier=0.4, max=5),
        reraise=True,
    )


async def read_object(uri: str) -> bytes:
    """Return the bytes at `file:///folder/rows.jsonl` or `s3://bucket/rows.jsonl`.

    Raises FileNotFoundError if there is no such object, UnreachableError if it can't be read.
    """
    bucket, key = _split(uri)
    return await bucket.get(key)


async def create_object(uri: str, data: bytes) -> bool:
    """Write the object unless there is one; return whether it was written.

    Raises UnreachableError.
    """
    bucket, key = _split(uri)
    return await bucket.create(key, data)


def _split(uri: str) -> tuple[Bucket, str]:
    parent, _, name = uri.rpartition("/")
    if not name or parent.endswith(":/"):
        raise UsageError(
            f"{uri!r} does not name an object",
            fix="write file:///folder/name or s3://bucket/name",
        )
    return Bucket.open(parent), name
