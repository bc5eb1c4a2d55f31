"""The reference fixes of a job's tasks, to show beside the patches of its episodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from swe_rollout.errors import SweRolloutError
from swe_rollout.store.store import Store
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.stored_tasks import load_tasks, stored_job


class GoldPatches:
    """The fixes of one job, read with its dataset when the first is asked for."""

    def __init__(self, store: Store, job: str) -> None:
        self._store = store
        self._job = job
        self._fixes: dict[str, tuple[str, str]] | None = None
        """By instance, the digest of its task and the fix."""
        self._loading = asyncio.Lock()

    async def beside(self, trajectory: Trajectory) -> dict[str, str]:
        """Return the fix as `patch`, or as `why` the reason that there is none."""
        try:
            async with self._loading:
                self._fixes = self._fixes or await self._load()
        except SweRolloutError as error:
            return {"why": f"the tasks of the job can't be read here: {error}"}
        digest, patch = self._fixes.get(trajectory.episode.instance, ("", ""))
        if not digest:
            return {"why": "its task is not in the dataset any more"}
        if trajectory.instance_digest not in ("", digest):
            return {"why": "its task has changed since the episode"}
        return {"patch": patch} if patch else {"why": "its task has no reference fix"}

    async def _load(self) -> dict[str, tuple[str, str]]:
        """Load the tasks without running any code from the store, and keep their fixes."""
        job = await stored_job(self._store, self._job)
        tasks = await load_tasks(job, base_dir=Path.cwd(), on_note=lambda _: None)
        return {name: (each.digest, each.gold_patch) for name, each in tasks.instances.items()}
