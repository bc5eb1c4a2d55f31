"""The container that an agent's pod has for its grader, with files and processes of its own.

It idles until the kubelet has reported the end of the agent's container, with which all processes
of the agent end. What the two share is only passive then: it is cleared and compared with what it
was before the policy acted. If it is not the same, grading gets a pod of its own. Used by
`provider`; ADR 21 says why the first test run may follow the agent, and a blind run nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Final

from swe_rollout.cluster.objects import Pod
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import SandboxRequest
from swe_rollout.sandbox.pods import diagnose
from swe_rollout.sandbox.pods.pod_spec import CONTAINER, GRADER_CONTAINER
from swe_rollout.sandbox.pods.reaper import VacatedPod
from swe_rollout.sandbox.pods.running import PodRuntime, RunningPod, open_session, shared_files
from swe_rollout.sandbox.script import read_script

TAKE_OVER_S: Final = 60.0
"""Time limit of the whole take-over. It takes a second; a busy API server tells late of the end of
the agent's container, and a new pod would add to what it has to do."""
_SHOWN: Final = 300


async def take_over(
    vacated: VacatedPod, runtime: PodRuntime, request: SandboxRequest, *, request_name: str
) -> RunningPod:
    """Return the clean sandbox beside one that was closed.

    Raises SandboxError, ClusterError or TimeoutError if it can't be used; it ends then.
    """
    async with AsyncExitStack() as cleanup, asyncio.timeout(TAKE_OVER_S):
        cleanup.callback(runtime.reaper.add, vacated.pod)
        # A launch of the agent's next attempt must not take this pod for its own.
        runtime.attached.add(vacated.pod.metadata.uid)
        pod = await _agent_ended(vacated.pod, runtime)
        session = await open_session(
            pod, runtime, workdir=request.workdir, container=GRADER_CONTAINER
        )
        running = RunningPod(pod, session, runtime, request_name=request_name)
        cleanup.push_async_callback(running.close)
        await _require_clean(running, vacated)
        await running.check_workdir()
        running.is_warm = True
        cleanup.pop_all()
    return running


async def _agent_ended(pod: Pod, runtime: PodRuntime) -> Pod:
    """Return the pod once the kubelet reports that the agent's container has ended."""
    with runtime.watch.follow(pod.metadata.uid) as follower:
        while True:
            if follower.gone:
                raise diagnose.deleted_error(pod.metadata.name)
            pod = follower.pod or pod
            if (lost := diagnose.loss_error(pod, GRADER_CONTAINER)) is not None:
                raise lost
            agent = pod.container_of(CONTAINER)
            if (
                agent is not None
                and agent.state.terminated is not None
                and diagnose.is_ready(pod, GRADER_CONTAINER)
            ):
                return pod
            await follower.changed()


async def _require_clean(running: RunningPod, vacated: VacatedPod) -> None:
    """Clear what the containers share. Raises SandboxError if something of the agent's is left."""
    cleared = await running.exec(read_script("clear_shared"), cwd="/")
    left = cleared.stdout.decode(errors="replace").strip()
    if not cleared.ok or left:
        why = left or f"clearing it ended with exit code {cleared.exit_code}"
    elif await shared_files(running) != vacated.shared_files:
        why = "files of the pod, such as /etc/hosts, were changed"
    else:
        return
    raise SandboxError(
        "the agent left something in its pod",
        why=why[:_SHOWN],
        fix="nothing: the patch is graded in a pod of its own",
    )
