"""Streams to a pod that is ending: the watch's report comes before a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from kube_api import KubeApi, refusal
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
from waits import until

POD = Pod(metadata=Metadata(name="p", namespace="default", uid="u"))
EXPIRED = {
    "metadata": {"name": "p", "uid": "u", "resourceVersion": "11"},
    "status": {"phase": "Failed", "reason": "DeadlineExceeded"},
}
SOON_S = 40.0
"""Less than the retry timeout for a node that refuses or does not respond."""


def ending(kind: str, *, silent: bool) -> KubeApi:
    """Return a server whose node has no container any more, before the watch reports why."""
    server = KubeApi()

    async def tried(request: web.Request) -> web.Response | None:
        if not request.path.endswith("/exec"):
            return None
        await until(lambda: server.is_watched)
        server.tell(EXPIRED, kind=kind)
        if silent:
            await asyncio.sleep(60)
        return refusal(500, message="container not found")

    server.hook = tried
    return server


@pytest.fixture
async def opener(
    request: pytest.FixtureRequest, connect: Connect
) -> AsyncIterator[PodStreamOpener]:
    client = await connect(ending(**request.param).respond, retry_timeout_s=60.0)
    watch = PodWatch(client, namespace="default", selector="a=b")
    await watch.start()
    made = PodStreamOpener(POD, client=client, watch=watch)
    yield made
    await made.close()
    await watch.aclose()


@pytest.mark.parametrize(
    "opener",
    [{"kind": "MODIFIED", "silent": False}, {"kind": "MODIFIED", "silent": True}],
    indirect=True,
    ids=["refuses", "silent"],
)
async def test_a_pod_at_its_end_is_not_waited_for(opener: PodStreamOpener) -> None:
    with pytest.raises(SandboxExpiredError):
        await asyncio.wait_for(opener.open(), SOON_S)


@pytest.mark.parametrize("opener", [{"kind": "DELETED", "silent": False}], indirect=True)
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
