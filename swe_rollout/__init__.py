"""Rollouts of coding agents for reinforcement learning, on Kubernetes.

    from swe_rollout import RolloutJob
    job = RolloutJob.from_yaml("job.yaml").launch()

The story of one episode is in `swe_rollout.episode`; the job that asks for many is in
`swe_rollout.spec`, what is done with it from Python in `swe_rollout.launcher`. Importing the
package imports nothing else: scripts without the dependencies do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swe_rollout.launcher import LaunchedJob, RolloutJob

__version__ = "0.1.0"
__all__ = ["LaunchedJob", "RolloutJob", "__version__"]

_LAUNCHER = ("LaunchedJob", "RolloutJob")


def __getattr__(name: str) -> object:
    """The public names, imported when they are asked for (PEP 562)."""
    if name in _LAUNCHER:
        return getattr(import_module("swe_rollout.launcher"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
