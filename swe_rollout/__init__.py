"""Rollouts of coding agents for reinforcement learning, on Kubernetes.

The story of one episode is in `swe_rollout.episode`; the job that asks for many is in
`swe_rollout.spec`.
"""

__version__ = "0.1.0"
