"""A job's session on an event loop of its own, in a thread beside the trainer's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import TypeVar

from swe_rollout.engine.base import TokenEngine
from swe_rollout.integrations.trainer_session import TrainerSession, block_of_rank, trainer_session
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.worker.session import Session

T = TypeVar("T")


class SessionThread:
    """Opens a session and runs coroutines beside it. A daemon: it never outlives the trainer."""

    def __init__(self, job: RolloutJob, *, engine: TokenEngine | None = None) -> None:
        """Raises what opening the session raises; `engine` is passed to `RolloutJob.session`."""
        self._job = job
        self._engine = engine
        self._opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(
            target=asyncio.run, args=(self._serve(),), name=f"session-{job.metadata.name}"
        )
        self._thread.daemon = True
        self._thread.start()
        self._loop, self._close = self._opened.result()

    def submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Start `work` on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Return the result of `work`; an interrupt such as ^C cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, end its sandboxes and close the session."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._close.set)
            self._thread.join()

    async def _serve(self) -> None:
        close = asyncio.Event()
        try:
            # Accelerate's processes each open the job.
            first = block_of_rank()
            opening = trainer_session(self._job, engine=self._engine, first_sample=first)
            async with opening as self.trainer:
                self._opened.set_result((asyncio.get_running_loop(), close))
                await close.wait()
                await _cancel_others()
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    trainer: TrainerSession

    @property
    def session(self) -> Session:
        """The open job."""
        return self.trainer.session


async def all_of(works: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Return the results in order; the first error cancels the others, and is raised as it is."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
