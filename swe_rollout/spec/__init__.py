"""RolloutJob: one schema for YAML, Python, the command line and the cluster."""

from swe_rollout.spec.job import RolloutJob, RolloutJobSpec
from swe_rollout.spec.load import load_job, parse_job

__all__ = ["RolloutJob", "RolloutJobSpec", "load_job", "parse_job"]
