"""The session of a job inside slime: opened from slime's arguments, sampling at slime's router."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.pool.pool import EnginePool
from swe_rollout.errors import UsageError
from swe_rollout.integrations.parking import Episodes, ParkingEngine, RunningEpisode
from swe_rollout.integrations.trainer_session import JOB_VARIABLE, TrainerSession, trainer_session
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.spec.policy import (
    Policy,
    ReplaySpec,
    RoutedExpertsSpec,
    Sampling,
    SglangPolicy,
)
from swe_rollout.worker.session import Session

PARK_S: Final = 600.0
"""How long an episode waits by default. Sandboxes outlive their episode's time by that much."""


class SlimeArgs(Protocol):
    """The arguments of slime that are used here; others are read where they are set.

    `swe_rollout_job` and `swe_rollout_park_seconds` come from slime's `--custom-config-path`.
    """

    sglang_router_ip: str
    sglang_router_port: int


@dataclass(frozen=True, slots=True)
class SlimeSession:
    """An open job and the episodes that slime has started."""

    trainer: TrainerSession
    engine: ParkingEngine
    episodes: Episodes

    @property
    def session(self) -> Session:
        """The open job."""
        return self.trainer.session

    def start(self, instance: str, sampling_params: Mapping[str, Any]) -> RunningEpisode:
        """Start an episode of a task.

        Its asyncio task raises UsageError if the job lacks the task, and FailureRateError.
        """
        episode = self.trainer.next_sample(instance)
        sampling = Sampling(
            temperature=sampling_params.get("temperature", 1.0),
            top_p=sampling_params.get("top_p", 1.0),
            top_k=sampling_params.get("top_k", -1),
            min_p=sampling_params.get("min_p", 0.0),
            seed=sampling_params.get("sampling_seed"),
        )
        play = self.trainer.run_episode(instance, sample=episode.sample, sampling=sampling)
        return self.episodes.start(
            episode, play, response_tokens=sampling_params.get("max_new_tokens")
        )


def job_of(args: SlimeArgs) -> Path | str:
    """Return the job file that slime's arguments or the environment name."""
    found = getattr(args, "swe_rollout_job", None) or os.environ.get(JOB_VARIABLE)
    if not found:
        raise UsageError(
            "slime names no rollout job",
            fix=f"set {JOB_VARIABLE}=/path/to/job.yaml, or swe_rollout_job in the file of "
            "--custom-config-path",
        )
    return str(found)


def router_of(args: SlimeArgs) -> str:
    """Return the address of slime's router."""
    return f"http://{args.sglang_router_ip}:{args.sglang_router_port}"


@asynccontextmanager
async def open_slime(
    args: SlimeArgs,
    *,
    stopped: Callable[[], bool],
    engine: TokenEngine | None = None,
) -> AsyncIterator[SlimeSession]:
    """Open the job on slime's router, or on another `engine`, ignoring its file's policy.

    Raises UsageError if it can't be trained on exactly, and the errors of `RolloutJob.session`.
    """
    if getattr(args, "rollout_top_p", 1.0) != 1.0:
        raise UsageError(
            "slime's --rollout-top-p must be 1.0",
            why="for other values its trainer wants the kept ids of each token, which SGLang does "
            "not return",
            fix="leave it at 1.0, or use --rollout-top-k",
        )
    job = RolloutJob.from_yaml(job_of(args))
    policy = _policy(args, job.spec.policy)
    spec = job.spec.model_copy(update={"policy": policy})
    job = job.model_copy(update={"spec": spec})
    parking = ParkingEngine(
        engine or await _pool(policy.sglang),
        stopped=stopped,
        context_tokens=getattr(args, "rollout_max_context_len", None),
    )
    try:
        async with trainer_session(job, engine=parking) as session:
            park_s = float(getattr(args, "swe_rollout_park_seconds", PARK_S))
            episodes = Episodes(parking, park_s=park_s, most=spec.parallelism)
            try:
                yield SlimeSession(session, parking, episodes)
            finally:
                await episodes.aclose()
    finally:
        await parking.aclose()


def _policy(args: SlimeArgs, named: Policy) -> Policy:
    """Return a policy for slime's router, with the templates and call format of the file."""
    options = named.sglang or SglangPolicy(url=router_of(args))
    record = options.record
    if getattr(args, "use_rollout_routing_replay", False):
        # slime has its own names for the model's shape.
        shape: Any = args
        experts = RoutedExpertsSpec(layers=shape.num_layers, topk=shape.moe_router_topk)
        record = ReplaySpec(**{**dict(record), "routed_experts": experts})
    sglang = options.model_copy(update={"url": router_of(args), "workers": (), "record": record})
    return Policy(
        sglang=sglang,
        tokenizer=named.tokenizer or getattr(args, "hf_checkpoint", None),
        chat_template_kwargs=named.chat_template_kwargs,
        template_date=named.template_date,
    )


async def _pool(policy: SglangPolicy | None) -> EnginePool:
    if policy is None:
        raise UsageError("the policy has no engine")
    # The engine reports its vocabulary's size before ids can be checked against it.
    scout = EnginePool(policy, vocab_size=1)
    try:
        info = await scout.info()
    finally:
        await scout.aclose()
    return EnginePool(policy, vocab_size=info.vocab_size or 2**31 - 1)
