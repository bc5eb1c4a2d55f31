"""Rollouts of coding agents for reinforcement learning, on Kubernetes.

    from swe_rollout import RolloutJob
    job = RolloutJob.from_yaml("job.yaml").launch()

The story of one episode is in `swe_rollout.episode`, the schema of a job in `swe_rollout.spec.job`.
Names are imported when they are used: importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swe_rollout.agent.context import AgentContext
    from swe_rollout.agent.parsers import CALL_FORMATS
    from swe_rollout.agent.program import AGENTS
    from swe_rollout.agent.tools.base import Tool, ToolContext, ToolError, Toolset
    from swe_rollout.agent.tools.function import tool
    from swe_rollout.datasets import DATASETS
    from swe_rollout.engine.chat.base import ChatRequest, ChatResponse
    from swe_rollout.engine.chat.function import CHAT_ENGINES
    from swe_rollout.episode import run_episode
    from swe_rollout.errors import Problem, SweRolloutError
    from swe_rollout.grading.parsers import LOG_PARSERS
    from swe_rollout.grading.rewards import REWARD_TERMS, RewardInput
    from swe_rollout.launcher.job import RolloutJob
    from swe_rollout.launcher.launched_job import LaunchedJob
    from swe_rollout.launcher.play import play
    from swe_rollout.launcher.stored_job import (
        JobStore,
        RunResult,
        StoredJob,
        open_store,
        read_trajectories,
    )
    from swe_rollout.sandbox.base import Sandbox
    from swe_rollout.spec.agent import ToolUse
    from swe_rollout.store.claims import Claim, ClaimLostError
    from swe_rollout.store.summary import JobSummary
    from swe_rollout.training.groups import (
        Baseline,
        Group,
        Scale,
        Score,
        grpo_advantages,
        rollout_weights,
    )
    from swe_rollout.training.sample_bounds import (
        FailureRate,
        FailureRateError,
        StaleAction,
        Staleness,
    )
    from swe_rollout.training.samples import SampleStatus, TrainingSample, training_samples
    from swe_rollout.types.episode import EpisodeId, StopReason
    from swe_rollout.types.instance import Evaluation, Expected, Instance
    from swe_rollout.types.trajectory import Trajectory
    from swe_rollout.types.turn import Observation
    from swe_rollout.types.verdict import Reward, RewardTerm
    from swe_rollout.worker.engines import ENGINES
    from swe_rollout.worker.sandboxes import SANDBOXES
    from swe_rollout.worker.session import Session

    agent_program = AGENTS.register
    call_format = CALL_FORMATS.register
    chat_engine = CHAT_ENGINES.register
    engine_backend = ENGINES.register
    sandbox_backend = SANDBOXES.register
    dataset_source = DATASETS.register
    log_parser = LOG_PARSERS.register
    reward_term = REWARD_TERMS.register

__version__ = "0.1.0"

_HOMES = {
    "AgentContext": "swe_rollout.agent.context",
    "Baseline": "swe_rollout.training.groups",
    "ChatRequest": "swe_rollout.engine.chat.base",
    "ChatResponse": "swe_rollout.engine.chat.base",
    "Claim": "swe_rollout.store.claims",
    "ClaimLostError": "swe_rollout.store.claims",
    "EpisodeId": "swe_rollout.types.episode",
    "Evaluation": "swe_rollout.types.instance",
    "Expected": "swe_rollout.types.instance",
    "FailureRate": "swe_rollout.training.sample_bounds",
    "FailureRateError": "swe_rollout.training.sample_bounds",
    "Group": "swe_rollout.training.groups",
    "Instance": "swe_rollout.types.instance",
    "JobStore": "swe_rollout.launcher.stored_job",
    "JobSummary": "swe_rollout.store.summary",
    "LaunchedJob": "swe_rollout.launcher.launched_job",
    "Observation": "swe_rollout.types.turn",
    "Problem": "swe_rollout.errors",
    "Reward": "swe_rollout.types.verdict",
    "RewardInput": "swe_rollout.grading.rewards",
    "RewardTerm": "swe_rollout.types.verdict",
    "RolloutJob": "swe_rollout.launcher.job",
    "RunResult": "swe_rollout.launcher.stored_job",
    "SampleStatus": "swe_rollout.training.samples",
    "Sandbox": "swe_rollout.sandbox.base",
    "Scale": "swe_rollout.training.groups",
    "Score": "swe_rollout.training.groups",
    "Session": "swe_rollout.worker.session",
    "StaleAction": "swe_rollout.training.sample_bounds",
    "Staleness": "swe_rollout.training.sample_bounds",
    "StopReason": "swe_rollout.types.episode",
    "StoredJob": "swe_rollout.launcher.stored_job",
    "SweRolloutError": "swe_rollout.errors",
    "Tool": "swe_rollout.agent.tools.base",
    "ToolContext": "swe_rollout.agent.tools.base",
    "ToolError": "swe_rollout.agent.tools.base",
    "ToolUse": "swe_rollout.spec.agent",
    "Toolset": "swe_rollout.agent.tools.base",
    "TrainingSample": "swe_rollout.training.samples",
    "Trajectory": "swe_rollout.types.trajectory",
    "agent_program": "swe_rollout.agent.program:AGENTS.register",
    "call_format": "swe_rollout.agent.parsers:CALL_FORMATS.register",
    "chat_engine": "swe_rollout.engine.chat.function:CHAT_ENGINES.register",
    "dataset_source": "swe_rollout.datasets:DATASETS.register",
    "engine_backend": "swe_rollout.worker.engines:ENGINES.register",
    "grpo_advantages": "swe_rollout.training.groups",
    "log_parser": "swe_rollout.grading.parsers:LOG_PARSERS.register",
    "open_store": "swe_rollout.launcher.stored_job",
    "play": "swe_rollout.launcher.play",
    "read_trajectories": "swe_rollout.launcher.stored_job",
    "reward_term": "swe_rollout.grading.rewards:REWARD_TERMS.register",
    "rollout_weights": "swe_rollout.training.groups",
    "run_episode": "swe_rollout.episode",
    "sandbox_backend": "swe_rollout.worker.sandboxes:SANDBOXES.register",
    "tool": "swe_rollout.agent.tools.function",
    "training_samples": "swe_rollout.training.samples",
}
"""Where each name is: a module that has it, or `module:attr`."""
__all__ = [
    "AgentContext",
    "Baseline",
    "ChatRequest",
    "ChatResponse",
    "Claim",
    "ClaimLostError",
    "EpisodeId",
    "Evaluation",
    "Expected",
    "FailureRate",
    "FailureRateError",
    "Group",
    "Instance",
    "JobStore",
    "JobSummary",
    "LaunchedJob",
    "Observation",
    "Problem",
    "Reward",
    "RewardInput",
    "RewardTerm",
    "RolloutJob",
    "RunResult",
    "SampleStatus",
    "Sandbox",
    "Scale",
    "Score",
    "Session",
    "StaleAction",
    "Staleness",
    "StopReason",
    "StoredJob",
    "SweRolloutError",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolUse",
    "Toolset",
    "TrainingSample",
    "Trajectory",
    "__version__",
    "agent_program",
    "call_format",
    "chat_engine",
    "dataset_source",
    "engine_backend",
    "grpo_advantages",
    "log_parser",
    "open_store",
    "play",
    "read_trajectories",
    "reward_term",
    "rollout_weights",
    "run_episode",
    "sandbox_backend",
    "tool",
    "training_samples",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        from difflib import get_close_matches  # noqa: PLC0415 - of no use before

        by_plain = {known.lower().replace("_", ""): known for known in __all__}
        close = by_plain.get(name.lower().replace("_", "")) or "".join(
            get_close_matches(name, __all__, n=1)
        )
        hint = f"; did you mean {close}?" if close else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    module, _, path = _HOMES[name].partition(":")
    return attrgetter(path or name)(import_module(module))


def __dir__() -> list[str]:
    return sorted(__all__)
