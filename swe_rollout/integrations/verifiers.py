"""verifiers and prime-rl: an episode as a `Trace`, and its samples in the columns of prime-rl.

    trace = trace_of(trajectory, reading)  # what `export --to verifiers` writes, as an object
    for sample in training_columns(trajectory, env_name="swe"):
        prime_rl.transport.TrainingSample(**sample, advantages=[…])

Every sampled token is in one branch of a trace, so that training all branches trains it once.
"""

from __future__ import annotations

from typing import TypedDict

from swe_rollout.export.chat import Reading
from swe_rollout.export.verifiers import trace
from swe_rollout.integrations.adapter import needed
from swe_rollout.training.samples import training_samples
from swe_rollout.types.trajectory import Trajectory

with needed("verifiers"):
    from verifiers.v1.trace import WireTrace


class TrainingColumns(TypedDict):
    """An episode as prime-rl's `TrainingSample` takes it. All four lists are equally long."""

    token_ids: list[int]
    mask: list[bool]
    """Whether the token is trained."""
    logprobs: list[float]
    """Logprobs in nats; 0.0 where the mask is false."""
    temperatures: list[float]
    """The temperature of each token; 1.0 where the mask is false."""
    env_name: str


def trace_of(trajectory: Trajectory, reading: Reading) -> WireTrace:
    """Return an episode as a trace, validated by verifiers' own model.

    Raises TaskError for an episode without tokens, or with unknown first messages.
    """
    return WireTrace.model_validate(trace(trajectory, reading))


def training_columns(trajectory: Trajectory, *, env_name: str) -> list[TrainingColumns]:
    """Return a sample for each branch of an episode; empty if it was not graded."""
    return [
        TrainingColumns(
            token_ids=list(sample.token_ids),
            mask=[*[False] * len(sample.prompt_ids), *map(bool, sample.loss_mask)],
            logprobs=[*[0.0] * len(sample.prompt_ids), *sample.logprobs],
            temperatures=[*[1.0] * len(sample.prompt_ids), *sample.temperatures],
            env_name=env_name,
        )
        for sample in training_samples(trajectory)
        if sample.is_trainable
    ]
