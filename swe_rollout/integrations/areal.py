"""AReaL: a workflow whose trajectories are the episodes of a job.

    workflow = "swe_rollout.integrations.areal.SweWorkflow"
    trainer.train(workflow=workflow, workflow_kwargs={"job": "job.yaml", "tokenizer": path})

AReaL normalises rewards over slices of a fixed size, which a failed episode or an extra branch
would shift. So a workflow with `samples` plays a whole group and returns rewards relative to it:
set the actor's `reward_norm` to null, and the trainer's own group size to 1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from statistics import fmean, stdev
from typing import TYPE_CHECKING, TypeAlias

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import UsageError, gather_all
from swe_rollout.integrations.adapter import Columns, TrainerEngine, generation_of, needed
from swe_rollout.integrations.trainer_session import TrainerSession, trainer_session
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.sync import held, let_go
from swe_rollout.training.sample_bounds import FailureRateError
from swe_rollout.training.samples import TrainingSample, training_samples
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import Generation

with needed("areal"):
    from areal.api import ModelRequest, RolloutWorkflow
    from areal.api.cli_args import GenerationHyperparameters
with needed("torch"):  # AReaL installs it.
    import torch

if TYPE_CHECKING:
    from areal.api import InferenceEngine

Tensors: TypeAlias = "dict[str, torch.Tensor]"

_EPSILON = 1e-6
_NOT_SAMPLED = -1
"""AReaL's version of a token that was not sampled."""


def tensors(group: Sequence[Trajectory]) -> Tensors | None:
    """Return the branches of graded episodes as rows, `[rows, longest]`; None if none remain.

    A single episode keeps its reward; rewards of a group are relative to its mean and deviation.
    Raises UsageError for tokens whose weight version is not a number.
    """
    values = [t.reward.value for t in group if t.reward is not None and not t.masked]
    if not values or len(group) > 1 == len(values):
        return None
    mean, deviation = 0.0, 1.0
    if len(group) > 1:
        mean, deviation = fmean(values), stdev(values) + _EPSILON
    samples = [s for each in group for s in training_samples(each) if s.is_trainable]
    if not samples:
        return None
    # AReaL puts the reward on the last token, and drops it if that token is not trained.
    columns = [Columns.of(each, filler=0) for each in samples]
    versions = [
        each.whole(_versions(sample)[: len(each.response_ids)], _NOT_SAMPLED)
        for each, sample in zip(columns, samples, strict=True)
    ]
    width = max(len(each.token_ids) for each in columns)

    def rows(values: Sequence[Sequence[float]], fill: float, dtype: torch.dtype) -> torch.Tensor:
        padded = [[*each, *[fill] * (width - len(each))] for each in values]
        return torch.tensor(padded, dtype=dtype)

    rewards = [(each.reward - mean) / deviation for each in samples if each.reward is not None]
    return {
        "input_ids": rows([each.token_ids for each in columns], 0, torch.int32),
        "loss_mask": rows([each.whole(each.loss_mask, 0) for each in columns], 0, torch.int32),
        "logprobs": rows([each.whole(each.logprobs, 0.0) for each in columns], 0.0, torch.float32),
        "versions": rows(versions, _NOT_SAMPLED, torch.int32),
        "attention_mask": rows([[1] * len(each.token_ids) for each in columns], 0, torch.bool),
        "rewards": torch.tensor(rewards, dtype=torch.float32),
    }


def _versions(sample: TrainingSample) -> list[int]:
    """Return the weight version of each token of the response."""
    found = []
    for version, mask in zip(sample.weight_versions, sample.loss_mask, strict=True):
        if mask and (version is None or not version.isdecimal()):
            raise UsageError(
                f"{sample.rollout_id} was sampled by weights without a number: {version}",
                fix="let the episodes be sampled by AReaL's engine",
            )
        found.append(int(version) if mask and version is not None else _NOT_SAMPLED)
    return found


_ALL = 100_000_000
"""AReaL's `top_k` for the whole vocabulary."""


class ArealEngine(TrainerEngine):
    """A token engine over `InferenceEngine.agenerate`, with a version for each token."""

    def __init__(
        self, engine: InferenceEngine, tokenizer: str, *, context_tokens: int | None = None
    ) -> None:
        """Use a `tokenizer`: a folder or a name on the hub."""
        super().__init__(tokenizer, context_tokens=context_tokens)
        self._engine = engine

    def weight_version(self) -> str:
        return str(self._engine.get_version())

    async def generate(self, request: GenerateRequest) -> Generation:
        sampling = request.sampling
        if sampling.min_p:
            raise UsageError("AReaL has no min_p", fix="remove spec.sampling.minP")
        ids = request.input_ids.tolist()
        parameters = GenerationHyperparameters(
            n_samples=1,
            max_new_tokens=request.max_new_tokens,
            max_tokens=len(ids) + request.max_new_tokens,
            greedy=sampling.temperature == 0,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k if sampling.top_k > 0 else _ALL,
            stop_token_ids=list(request.stop_token_ids),
            skip_special_tokens=False,
        )
        # Calls with the same id go to one server, whose prefix cache holds the branch.
        name = f"{request.episode}#{request.branch}"
        answer = await self._engine.agenerate(
            ModelRequest(rid=name, input_ids=ids, gconfig=parameters)
        )
        return generation_of(
            request,
            answer.output_tokens,
            answer.output_logprobs,
            answer.stop_reason,
            [str(version) for version in answer.output_versions],
        )


class SweWorkflow(RolloutWorkflow):
    """Plays a task once, or as a group of `samples` episodes."""

    def __init__(
        self,
        job: RolloutJob | str,
        *,
        tokenizer: str,
        samples: int = 1,
        context_tokens: int | None = None,
        column: str = "instance_id",
    ) -> None:
        """Use a `job` or the path of its file. `column` of AReaL's dataset names the job's task;
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

        Raises UsageError if `data` names no task of the job. A FailureRateError, raised if too many
        of the last episodes failed, also ends the executor: AReaL only logs a workflow's errors.
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
        """Return the session for an engine: the trainer has one, evaluation another.

        Workflows share it: AReaL creates one for each submission. Entries keep their job and engine
        alive, so that no others get the same ids.
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
    """Make the trainer's next call to AReaL's executor raise an error, as its threads do."""
    try:
        dispatcher = engine.workflow_executor.dispatcher
    except (AttributeError, NotImplementedError):
        # If the engine has no executor, whoever plays the workflow gets the error itself.
        return
    dispatcher._set_thread_exception(error)  # noqa: SLF001 - AReaL has no public way
