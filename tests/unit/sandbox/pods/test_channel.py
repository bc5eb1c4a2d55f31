"""Streams to a pod that is ending: the watch's report comes before a timeout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from swe_rollout.cluster.exec import ExecEndedError, ExecLostError
from swe_rollout.cluster.objects import Metadata, Pod
from swe_rollout.cluster.watch import PodWatch
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.pods.channel import PodStreamOpener, _stream_loss
from swe_rollout.sandbox.pods.diagnose import PodLostError, SandboxExpiredError
from swe_rollout.sandbox.session import bootstrap
from swe_rollout.sandbox.session.channel import (
    RelayEndedError,
    StreamLostError,
    SupervisorGoneError,
)
from unit.conftest import Connect

POD = Pod(metadata=Metadata(name="p", namespace="default", uid="u"))
EXPIRED = {
    "type": "MODIFIED",
    "object": {
        "metadata": {"name": "p", "uid": "u", "resourceVersion": "11"},
        "status": {"phase": "Failed", "reason": "DeadlineExceeded"},
    },
}
DELETED = {"type": "DELETED", "object": EXPIRED["object"]}
SOON_S = 40.0
"""Less than the retry timeout for a node that refuses or does not respond."""


class EndingPod:
    """An API server whose node has no container for exec any more, before the watch reports why."""

    def __init__(self, *, end: dict[str, Any], silent: bool) -> None:
        self._end = end
        self._silent = silent
        self._tried = asyncio.Event()

    async def respond(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/exec"):
            self._tried.set()
            if self._silent:
                await asyncio.sleep(60)
            return web.json_response({"code": 500, "message": "container not found"}, status=500)
        if "watch" in request.query:
            return await self._watch(request)
        return web.json_response({"metadata": {"resourceVersion": "10"}, "items": []})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await self._tried.wait()
        await response.write(json.dumps(self._end).encode() + b"\n")
        await asyncio.sleep(60)
        return response


@pytest.fixture
async def opener(
    request: pytest.FixtureRequest, connect: Connect
) -> AsyncIterator[PodStreamOpener]:
    client = await connect(EndingPod(**request.param).respond, retry_timeout_s=60.0)
    watch = PodWatch(client, namespace="default", selector="a=b")
    await watch.start()
    made = PodStreamOpener(POD, client=client, watch=watch)
    yield made
    await made.close()
    await watch.aclose()


@pytest.mark.parametrize(
    "opener",
    [{"end": EXPIRED, "silent": False}, {"end": EXPIRED, "silent": True}],
    indirect=True,
    ids=["refuses", "silent"],
)
async def test_a_pod_at_its_end_is_not_waited_for(opener: PodStreamOpener) -> None:
    with pytest.raises(SandboxExpiredError):
        await asyncio.wait_for(opener.open(), SOON_S)


@pytest.mark.parametrize("opener", [{"end": DELETED, "silent": False}], indirect=True)
async def test_a_pod_that_is_deleted_is_not_waited_for(opener: PodStreamOpener) -> None:
    with pytest.raises(PodLostError, match="was deleted"):
        await asyncio.wait_for(opener.open(), SOON_S)


def ended(code: int) -> SandboxError:
    return ExecEndedError("p", code, b"")


@pytest.mark.parametrize(
    ("error", "is_first", "kind"),
    [
        (ExecLostError("the stream broke"), False, StreamLostError),
        (ExecLostError("the stream broke"), True, StreamLostError),
        (ended(137), True, RelayEndedError),
        (ended(137), False, RelayEndedError),
        (ended(bootstrap.BROKEN), True, RelayEndedError),
        (ended(bootstrap.BROKEN), False, RelayEndedError),
        (ended(bootstrap.GONE), False, SupervisorGoneError),
        (ended(127), False, RelayEndedError),
        (ended(126), False, RelayEndedError),
        (ended(127), True, type(None)),
        (ended(70), True, type(None)),
        (SandboxError("something else"), False, type(None)),
    ],
)
def test_who_ended_a_stream_in_a_healthy_pod(
    error: SandboxError,
    is_first: bool,  # noqa: FBT001 - parametrized
    kind: type,
) -> None:
    """Issue 16, point 4: a shell that a policy replaced ends streams as a killed relay does."""
    lost = _stream_loss(error, is_first=is_first)
    assert type(lost) is kind
