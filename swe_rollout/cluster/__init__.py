"""The Kubernetes API on an own thin transport: requests, watches, exec streams, a doctor.

Only here are `kubernetes` (configuration and credentials, nothing else) and `aiohttp` imported.
Sandboxes of pods are built on it in `swe_rollout.sandbox.pods.provider`.
"""
