"""An extension for `recycle`: a back end whose pods serve one run each, of an agent or of tests."""

from __future__ import annotations

from dataclasses import replace

from swe_rollout.sandbox.base import Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.sandbox.wrapped import WrappedSandboxes
from swe_rollout.spec.sandbox import PodSandbox, Resources
from swe_rollout.worker.sandboxes import SandboxSetup, open_pods


class PodPerRun(WrappedSandboxes):
    """Pods without a second container, so that graders find none in their agent's pod."""

    async def start(self, request: SandboxRequest) -> Sandbox:
        return await super().start(replace(request, grading_s=0.0))


def open_pod_per_run(setup: SandboxSetup, *, cpu: str, memory: str) -> SandboxProvider:
    """Open it, with pods of this size."""
    options = PodSandbox(resources=Resources(cpu=cpu, memory=memory))
    return PodPerRun(open_pods(setup, options=options))
