"""AReaL: a workflow whose trajectories are the episodes of a job.

    workflow = "swe_rollout.integrations.areal.SweWorkflow"
    trainer.train(workflow=workflow, workflow_kwargs={"job": "job.yaml", "tokenizer": path})

AReaL normalises rewards over slices of a fixed size, which a failed episode or a further branch
would shift. So a workflow with `samples` plays a whole group and returns its rewards relative to
each other: set the actor's `reward_norm` to null, and the trainer's own group size to 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from swe_rollout.errors import UsageError, gather_all
from swe_rollout.integrations.areal_engine import ArealEngine
from swe_rollout.integrations.areal_tensors import Tensors, tensors
from swe_rollout.integrations.needed import needed
from swe_rollout.integrations.trainer_session import TrainerSession, trainer_session
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.sync import held, let_go
from swe_rollout.training.sample_bounds import FailureRateError

with needed("areal"):
    from areal.api import RolloutWorkflow

if TYPE_CHECKING:
    from areal.api import InferenceEngine


class SweWorkflow(RolloutWorkflow):  # type: ignore[misc]  # untyped here
    """Plays a task once, or a group of `samples` episodes of it."""

    def __init__(
        self,
        job: RolloutJob | str,
        *,
        tokenizer: str,
        samples: int = 1,
        context_tokens: int | None = None,
        column: str = "instance_id",
    ) -> None:
        """`job` may be the path of its file. `column` of AReaL's dataset names the job's task;
        `tokenizer` and `context_tokens` are those of the engine's model.
        """
        self._job = job
        self._tokenizer = tokenizer
        self._samples = samples
        self._context_tokens = context_tokens
        self._column = column
        self._keys: set[Hashable] = set()

    async def arun_episode(
        self, engine: InferenceEngine, data: Mapping[str, object]
    ) -> Tensors | None:
        """Play the task that `data` names; None if there is nothing to train on.

        Raises UsageError for data that names no task of the job. FailureRateError, when too many
        of the last episodes failed, also ends the executor: AReaL only logs what a workflow raises.
        """
        if self._column not in data:
            raise UsageError(
                f"AReaL's dataset has no column {self._column}",
                why="it names the task of the job",
                fix="add it, or name another: SweWorkflow(job, column=…)",
            )
        instance = str(data[self._column])
        session = await self._session(engine)
        try:
            return tensors(
                await gather_all(session.run_sample(instance) for _ in range(self._samples))
            )
        except FailureRateError as error:
            _stop_trainer(engine, error)
            raise

    async def aclose(self) -> None:
        """Close the sessions of the job."""
        await let_go(self._keys)

    async def _session(self, engine: InferenceEngine) -> TrainerSession:
        """Return the session that samples from an engine: the trainer has one, evaluation another.

        Workflows share it: AReaL makes one for each submission. What is held keeps its job and its
        engine, so that no others have their ids.
        """
        job = self._job if isinstance(self._job, str) else id(self._job)
        key = ("areal", job, id(engine), self._tokenizer, self._context_tokens)
        self._keys.add(key)
        return await held(key, partial(self._open, engine))

    @asynccontextmanager
    async def _open(self, engine: InferenceEngine) -> AsyncIterator[TrainerSession]:
        job = RolloutJob.from_yaml(self._job) if isinstance(self._job, str) else self._job
        own = ArealEngine(engine, self._tokenizer, context_tokens=self._context_tokens)
        async with trainer_session(job, engine=own) as session:
            yield session


def _stop_trainer(engine: InferenceEngine, error: FailureRateError) -> None:
    """Let the next call of the trainer at AReaL's executor raise an error, as its threads do."""
    try:
        dispatcher = engine.workflow_executor.dispatcher
    except (AttributeError, NotImplementedError):
        # An engine without an executor: whoever plays the workflow gets the error itself.
        return
    dispatcher._set_thread_exception(error)  # noqa: SLF001 - AReaL has no public way
