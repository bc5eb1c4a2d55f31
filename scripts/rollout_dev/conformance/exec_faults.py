"""Faults: the connection between a client and its command breaks, or the pod does.

A client that loses a command must report that within seconds, with an error that says what
happened; a result with an exit code, or partial output presented as complete, is wrong. Our own
sessions must recover unnoticed while the pod is healthy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from rollout_dev.conformance.exec_commands import EVERY_BYTE, PRINT_EVERY_BYTE, many_lines
from rollout_dev.conformance.exec_scene import Cell, Scene, Trial, none, right_if, wrong
from rollout_dev.faults.exec_proxy import GARBAGE, ExecProxy, StreamFault, status_error
from rollout_dev.faults.fault_proxy import AcceptMode, CutMode
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.objects import PODS

_SECONDS = 15.0
_KILLED = 137
_CODE = 3
_ONCE = 'echo x >>"$1"; sleep 3; echo done'
"""Leaves a trace of each run."""


async def internal_error(scene: Scene) -> Cell:
    """Channel 3 carries a status that is not about the command and has no exit code."""

    async def fail(proxy: ExecProxy) -> None:
        for connection in proxy.execs:
            connection.inject(status_error("container is gone"))
        await asyncio.sleep(0.2)
        proxy.cut(CutMode.FIN)

    return await _survived(scene, await _once(scene, fail))


async def dropped_by_reset(scene: Scene) -> Cell:
    """The connection is reset in the middle of a command."""
    return await _survived(scene, await _once(scene, ExecProxy.cut))


async def dropped_in_order(scene: Scene) -> Cell:
    """The connection is closed cleanly in the middle of a command, without a status."""
    trial = await _once(scene, lambda proxy: proxy.cut(CutMode.FIN))
    return await _survived(scene, trial)


async def server_unavailable(scene: Scene) -> Cell:
    """All connections drop, and new ones are refused for three seconds."""
    if not scene.is_ours:
        return none("to it, the same as a reset")

    async def cut(proxy: ExecProxy) -> None:
        proxy.rules = replace(proxy.rules, accept=AcceptMode.REFUSED)
        proxy.cut(CutMode.RESET)
        await asyncio.sleep(3)
        proxy.rules = replace(proxy.rules, accept=AcceptMode.OPEN)

    return await _survived(scene, await _once(scene, cut))


async def dropped_in_the_response(scene: Scene) -> Cell:
    """The connection is reset while 5 MB of output are in flight."""
    script, expected = many_lines(80)

    async def cut(proxy: ExecProxy) -> None:
        # By then the first bytes have arrived, slowly.
        await asyncio.sleep(0.2)
        for connection in proxy.execs:
            connection.cut()
        proxy.rules = replace(proxy.rules, delay_s=0.0)

    scene.faults.rules = replace(scene.faults.rules, delay_s=0.05)
    trial = await scene.while_running(f"sleep 1; {script}", then=cut)
    if scene.is_ours:
        return right_if(trial.printed(expected), str(trial))
    return right_if(trial.reported, str(trial))


async def half_open(scene: Scene) -> Cell:
    """The connection stays open, and nothing passes any more."""
    trial = await _once(scene, ExecProxy.silence, timeout_s=10.0)
    if scene.is_ours:
        return await _survived(scene, trial)
    return right_if(trial.gave_up and trial.took_s < _SECONDS, str(trial))


async def corrupt_frame(scene: Scene) -> Cell:
    """The server sends a frame that is invalid in WebSocket."""

    def corrupt(proxy: ExecProxy) -> None:
        for connection in proxy.execs:
            connection.inject(GARBAGE)

    return await _survived(scene, await _once(scene, corrupt))


async def no_status(scene: Scene) -> Cell:
    """The stream ends as usual, but without a status."""
    trial = await _ended_with_3(scene, StreamFault.NO_STATUS, timeout_s=10.0)
    return right_if(trial.exited(_CODE) if scene.is_ours else trial.reported, str(trial))


async def no_end(scene: Scene) -> Cell:
    """Neither a status nor the end of the stream arrives."""
    trial = await _ended_with_3(scene, StreamFault.NO_END, timeout_s=5.0)
    gave_up = trial.gave_up and trial.took_s < _SECONDS
    return right_if(trial.exited(_CODE) if scene.is_ours else gave_up, str(trial))


async def split_frames(scene: Scene) -> Cell:
    """The output arrives in messages of three bytes."""
    return await _twisted(scene, StreamFault.SPLIT)


async def fragmented_frames(scene: Scene) -> Cell:
    """Each message arrives in WebSocket fragments of three bytes."""
    return await _twisted(scene, StreamFault.FRAGMENTED)


async def strange_channels(scene: Scene) -> Cell:
    """Messages on unknown channels, and some without data, arrive in between."""
    return await _twisted(scene, StreamFault.STRANGE)


async def reader_that_stops(scene: Scene) -> Cell:
    """Nothing is read for three seconds while 5 MB are in flight; nothing is lost."""
    script, expected = many_lines(80)

    async def stall(proxy: ExecProxy) -> None:
        proxy.rules = replace(proxy.rules, stalled=True)
        await asyncio.sleep(3)
        proxy.rules = replace(proxy.rules, stalled=False)

    trial = await scene.while_running(f"sleep 1; {script}", then=stall)
    return right_if(trial.printed(expected), str(trial))


async def pod_deleted(scene: Scene) -> Cell:
    """The pod is deleted while a command runs, which must give an error and no result."""
    task = asyncio.create_task(scene.sh("sleep 60", timeout_s=40.0))
    await asyncio.sleep(1)
    await delete_pod(scene)
    trial = await task
    return right_if(trial.reported and trial.took_s < _SECONDS, str(trial))


async def everything_killed(scene: Scene) -> Cell:
    """A command kills all processes it can, even process 1, and goes on alone to its result."""
    trial = await scene.sh("kill -KILL 1; kill -KILL -1; echo alone", timeout_s=20.0)
    return right_if(trial.printed(b"alone\n") or trial.reported, str(trial))


async def out_of_memory(scene: Scene) -> Cell:
    """The command exceeds the memory limit, which must give 137 or an error."""
    trial = await scene.sh("x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done", timeout_s=40.0)
    return _killed(trial)


async def delete_pod(scene: Scene) -> None:
    """Delete the scene's pod, if it is still there."""
    with contextlib.suppress(ApiError):
        await scene.site.client.delete(PODS, scene.site.namespace, scene.pod, grace_s=1)


async def _once(
    scene: Scene, fault: Callable[[ExecProxy], Awaitable[None] | None], *, timeout_s: float = 20.0
) -> Trial:
    return await scene.while_running(
        _ONCE, f"{scene.folder}.count", then=fault, timeout_s=timeout_s
    )


async def _survived(scene: Scene, trial: Trial) -> Cell:
    """Our client must return the result of a single run; others an error without a second run."""
    count = await scene.look('cat "$1"', f"{scene.folder}.count")
    if count != "x\n":
        return wrong(f"it ran {count.count('x')} times")
    if scene.is_ours:
        return right_if(trial.printed(b"done\n"), str(trial))
    return right_if(trial.reported and trial.took_s < _SECONDS, str(trial))


async def _ended_with_3(scene: Scene, fault: StreamFault, *, timeout_s: float) -> Trial:
    scene.faults.stream_fault = fault
    return await scene.sh(f"echo done; exit {_CODE}", timeout_s=timeout_s)


async def _twisted(scene: Scene, twist: StreamFault) -> Cell:
    scene.faults.stream_fault = twist
    trial = await scene.sh(f"{PRINT_EVERY_BYTE}; exit 0")
    return right_if(trial.printed(EVERY_BYTE), str(trial))


def _killed(trial: Trial) -> Cell:
    ended = trial.exited(_KILLED) or trial.reported
    return right_if(ended and trial.took_s < 2 * _SECONDS, str(trial))
