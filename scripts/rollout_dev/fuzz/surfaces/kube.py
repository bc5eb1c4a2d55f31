"""Objects of the Kubernetes API: bodies, events of a watch, errors, or a proxy's page instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from rollout_dev.fuzz.surface import run_async, split_head, surface
from swe_rollout.cluster.api_error import api_error
from swe_rollout.cluster.client import ClusterClient
from swe_rollout.cluster.job_objects import ROLLOUT_JOBS, JobObject
from swe_rollout.cluster.objects import PODS, Pod
from swe_rollout.cluster.responses import decode_response, read_changes, read_list
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import ClusterError, SweRolloutError
from swe_rollout.sandbox.pods import diagnose

if TYPE_CHECKING:
    import aiohttp


class _Stream:
    """A response that arrives in pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def iter_any(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._data), 1000):
            yield self._data[start : start + 1000]
            await asyncio.sleep(0)


async def _watch(data: bytes) -> None:
    watch = PodWatch(cast("ClusterClient", None), namespace="n", selector="s")
    with watch.follow("u"):
        stream = cast("aiohttp.StreamReader", _Stream(data))
        async for change in read_changes(stream, PODS, doing="watch"):
            watch._process(change)  # noqa: SLF001 - what its task does


def _read(data: bytes) -> None:
    head, body = split_head(data)
    match head.split():
        case ["pod"]:
            _diagnose(decode_response(body, Pod, doing="read"))
        case ["pods"]:
            for pod in read_list(body, PODS, doing="list").items:
                _diagnose(pod)
        case ["status", code] if code.isascii() and code.isdigit():
            error = api_error("do it", int(code), body)
            str(error)
            str(diagnose.creation_error(error, "p"))
            str(diagnose.setup_error(error))
        case ["job"]:
            JobObject.decode(body)
        case ["jobs"]:
            read_list(body, ROLLOUT_JOBS, doing="list")
        case ["watch"]:
            run_async(_watch(body))
        case _:
            pass


def _diagnose(pod: Pod) -> None:
    diagnose.is_ready(pod)
    diagnose.start_problem(pod)
    str(diagnose.slow_start_error(pod, 3.0))
    diagnose.loss_error(pod)


OBJECTS = surface("kube-objects", _read, ClusterError, SweRolloutError)
