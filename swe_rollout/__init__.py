"""Rollouts of coding agents for reinforcement learning, on Kubernetes.

    from swe_rollout import RolloutJob
    job = RolloutJob.from_yaml("job.yaml").launch()

The story of one episode is in `swe_rollout.episode`, the schema of a job in `swe_rollout.spec.job`.
Names are imported on first use, so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swe_rollout.agent.context import AgentContext as AgentContext
    from swe_rollout.agent.parsers import CALL_FORMATS
    from swe_rollout.agent.program import AGENTS
    from swe_rollout.agent.tools.base import Tool as Tool
    from swe_rollout.agent.tools.base import ToolContext as ToolContext
    from swe_rollout.agent.tools.base import ToolError as ToolError
    from swe_rollout.agent.tools.base import Toolset as Toolset
    from swe_rollout.agent.tools.function import tool as tool
    from swe_rollout.datasets import DATASETS
    from swe_rollout.engine.chat.base import ChatRequest as ChatRequest
    from swe_rollout.engine.chat.base import ChatResponse as ChatResponse
    from swe_rollout.engine.chat.function import CHAT_ENGINES
    from swe_rollout.episode import run_episode as run_episode
    from swe_rollout.errors import Problem as Problem
    from swe_rollout.errors import SweRolloutError as SweRolloutError
    from swe_rollout.grading.parsers import LOG_PARSERS
    from swe_rollout.grading.rewards import REWARD_TERMS
    from swe_rollout.grading.rewards import RewardInput as RewardInput
    from swe_rollout.launcher.job import RolloutJob as RolloutJob
    from swe_rollout.launcher.launched_job import LaunchedJob as LaunchedJob
    from swe_rollout.launcher.play import play as play
    from swe_rollout.launcher.stored_job import JobStore as JobStore
    from swe_rollout.launcher.stored_job import RunResult as RunResult
    from swe_rollout.launcher.stored_job import StoredJob as StoredJob
    from swe_rollout.launcher.stored_job import open_store as open_store
    from swe_rollout.launcher.stored_job import read_trajectories as read_trajectories
    from swe_rollout.sandbox.base import Sandbox as Sandbox
    from swe_rollout.spec.agent import ToolUse as ToolUse
    from swe_rollout.store.claims import Claim as Claim
    from swe_rollout.store.claims import ClaimLostError as ClaimLostError
    from swe_rollout.store.summary import JobSummary as JobSummary
    from swe_rollout.training.groups import Baseline as Baseline
    from swe_rollout.training.groups import Group as Group
    from swe_rollout.training.groups import Scale as Scale
    from swe_rollout.training.groups import Score as Score
    from swe_rollout.training.groups import grpo_advantages as grpo_advantages
    from swe_rollout.training.groups import rollout_weights as rollout_weights
    from swe_rollout.training.sample_bounds import FailureRate as FailureRate
    from swe_rollout.training.sample_bounds import FailureRateError as FailureRateError
    from swe_rollout.training.sample_bounds import StaleAction as StaleAction
    from swe_rollout.training.sample_bounds import Staleness as Staleness
    from swe_rollout.training.samples import SampleStatus as SampleStatus
    from swe_rollout.training.samples import TrainingSample as TrainingSample
    from swe_rollout.training.samples import training_samples as training_samples
    from swe_rollout.types.episode import EpisodeId as EpisodeId
    from swe_rollout.types.episode import StopReason as StopReason
    from swe_rollout.types.instance import Evaluation as Evaluation
    from swe_rollout.types.instance import Expected as Expected
    from swe_rollout.types.instance import Instance as Instance
    from swe_rollout.types.trajectory import Trajectory as Trajectory
    from swe_rollout.types.turn import Observation as Observation
    from swe_rollout.types.verdict import Reward as Reward
    from swe_rollout.types.verdict import RewardTerm as RewardTerm
    from swe_rollout.worker.engines import ENGINES
    from swe_rollout.worker.sandboxes import SANDBOXES
    from swe_rollout.worker.session import Session as Session

    agent_program = AGENTS.register
    call_format = CALL_FORMATS.register
    chat_engine = CHAT_ENGINES.register
    engine_backend = ENGINES.register
    sandbox_backend = SANDBOXES.register
    dataset_source = DATASETS.register
    log_parser = LOG_PARSERS.register
    reward_term = REWARD_TERMS.register

__version__ = "0.1.0"

_NAMES = {
    "swe_rollout.agent.context": ("AgentContext",),
    "swe_rollout.agent.tools.base": ("Tool", "ToolContext", "ToolError", "Toolset"),
    "swe_rollout.agent.tools.function": ("tool",),
    "swe_rollout.engine.chat.base": ("ChatRequest", "ChatResponse"),
    "swe_rollout.episode": ("run_episode",),
    "swe_rollout.errors": ("Problem", "SweRolloutError"),
    "swe_rollout.grading.rewards": ("RewardInput",),
    "swe_rollout.launcher.job": ("RolloutJob",),
    "swe_rollout.launcher.launched_job": ("LaunchedJob",),
    "swe_rollout.launcher.play": ("play",),
    "swe_rollout.launcher.stored_job": (
        "JobStore",
        "RunResult",
        "StoredJob",
        "open_store",
        "read_trajectories",
    ),
    "swe_rollout.sandbox.base": ("Sandbox",),
    "swe_rollout.spec.agent": ("ToolUse",),
    "swe_rollout.store.claims": ("Claim", "ClaimLostError"),
    "swe_rollout.store.summary": ("JobSummary",),
    "swe_rollout.training.groups": (
        "Baseline",
        "Group",
        "Scale",
        "Score",
        "grpo_advantages",
        "rollout_weights",
    ),
    "swe_rollout.training.sample_bounds": (
        "FailureRate",
        "FailureRateError",
        "StaleAction",
        "Staleness",
    ),
    "swe_rollout.training.samples": ("SampleStatus", "TrainingSample", "training_samples"),
    "swe_rollout.types.episode": ("EpisodeId", "StopReason"),
    "swe_rollout.types.instance": ("Evaluation", "Expected", "Instance"),
    "swe_rollout.types.trajectory": ("Trajectory",),
    "swe_rollout.types.turn": ("Observation",),
    "swe_rollout.types.verdict": ("Reward", "RewardTerm"),
    "swe_rollout.worker.session": ("Session",),
}
"""The public names of each module."""
_REGISTERS = {
    "agent_program": "swe_rollout.agent.program:AGENTS",
    "call_format": "swe_rollout.agent.parsers:CALL_FORMATS",
    "chat_engine": "swe_rollout.engine.chat.function:CHAT_ENGINES",
    "dataset_source": "swe_rollout.datasets:DATASETS",
    "engine_backend": "swe_rollout.worker.engines:ENGINES",
    "log_parser": "swe_rollout.grading.parsers:LOG_PARSERS",
    "reward_term": "swe_rollout.grading.rewards:REWARD_TERMS",
    "sandbox_backend": "swe_rollout.worker.sandboxes:SANDBOXES",
}
"""Decorators that register an extension, each the `register` of an extension point."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names} | {
    name: f"{point}.register" for name, point in _REGISTERS.items()
}
"""Where each name is defined: a module, or `module:attr`."""
__all__ = list(_HOMES)
__all__ += ["__version__"]


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
