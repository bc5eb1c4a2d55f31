"""The interface of every exec client: run one program in one container and return its result.

Used by `scripts/bench exec` and `scripts/conformance exec`. Peers are used at their best: bytes
instead of text, separate channels, exit codes by their own parser where they have one. A client may
raise anything; benchmark and conformance look at the finished task.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

from swe_rollout.errors import SweRolloutError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientTarget:
    """A container of a running pod, and the kubeconfig that reaches it."""

    kubeconfig: str
    """The path of one file."""
    context: str
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command as a client reports it."""

    exit_code: int | None
    """None: the client does not report it."""
    stdout: bytes
    stderr: bytes = b""
    timed_out: bool = False
    stdout_bytes: int | None = None
    """Bytes written in total, where the client caps its output and counts."""


class Runner(Protocol):
    """A client that is bound to one container. `run` may be called concurrently."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        """Run a program; errors of the client are passed on."""
        ...

    async def aclose(self) -> None:
        """Release the client's connections."""
        ...


_THREADS = ThreadPoolExecutor(max_workers=256, thread_name_prefix="client")


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking `work` in a thread. Some clients hang for good: end the process by `leave`."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


def leave(code: int) -> NoReturn:
    """End the process without waiting for the threads of clients that hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_or_leave(work: Coroutine[object, object, T]) -> T:
    """Run `work` to its end; leave the process on an error of ours, SIGINT or SIGTERM.

    Both signals cancel the work, so that it cleans up.
    """
    try:
        return asyncio.run(_cancelled_by_sigterm(work))
    except SweRolloutError as error:
        sys.stderr.write(f"{error}\n")
        leave(error.exit_code)
    except (KeyboardInterrupt, asyncio.CancelledError):
        leave(130)


async def _cancelled_by_sigterm(work: Coroutine[object, object, T]) -> T:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
