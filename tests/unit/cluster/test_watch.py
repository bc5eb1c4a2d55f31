"""The watch: how it recovers, and what its followers see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from swe_rollout.cluster import watch as watch_module
from swe_rollout.cluster.api_error import ApiError
from swe_rollout.cluster.watch import PodWatch
from unit.cluster.job_server import JobServer
from unit.conftest import Connect
from waits import PATIENCE_S, until


def pod(uid: str, *, version: str, phase: str = "Pending") -> dict[str, Any]:
    metadata = {"name": f"pod-{uid}", "uid": uid, "resourceVersion": version}
    return {"metadata": metadata, "status": {"phase": phase}}


def event(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": body}


EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})


def script(*, lists: list[list[dict[str, Any]]], watches: list[Any]) -> JobServer:
    """Return a server that plays lists and watches in the order given; then it stays silent."""
    listed = [{"metadata": {"resourceVersion": "10"}, "items": items} for items in lists]
    return JobServer(gets=listed, watches=watches)


@pytest.fixture
async def watching(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setattr(watch_module, "_PAUSE_S", 0.01)
    open_watches: list[PodWatch] = []

    async def start(server: JobServer) -> PodWatch:
        watch = PodWatch(await connect(server.respond), namespace="default", selector="a=b")
        open_watches.append(watch)
        await watch.start()
        return watch

    yield start
    for watch in open_watches:
        await watch.aclose()


async def test_a_follower_sees_a_pod_change_and_go(watching: Any) -> None:
    later = [
        event("MODIFIED", pod("a", version="11", phase="Running")),
        event("DELETED", pod("a", version="12", phase="Running")),
    ]
    watch = await watching(script(lists=[[pod("a", version="9")]], watches=[later]))
    phases = []
    with watch.follow("a") as follower:
        assert follower.pod is not None
        while not follower.gone:
            await asyncio.wait_for(follower.changed(), PATIENCE_S)
            phases.append(follower.pod.status.phase)
    assert phases[-1] == "Running"


async def test_a_version_that_is_too_old_is_listed_again(watching: Any) -> None:
    for refusal in (410, [EXPIRED]):
        lists = [[pod("a", version="9")], [pod("a", version="20", phase="Running")]]
        server = script(lists=lists, watches=[refusal, []])
        watch = await watching(server)
        with watch.follow("a") as follower:
            await asyncio.wait_for(follower.changed(), PATIENCE_S)
            assert follower.pod.status.phase == "Running"
        assert server.requests[:3] == ["GET", "watch from 10", "GET"]


@pytest.mark.parametrize("end", [410, [EXPIRED]], ids=["refused", "expired"])
async def test_watches_that_end_at_once_are_not_resumed_at_once(
    watching: Any, monkeypatch: pytest.MonkeyPatch, end: Any
) -> None:
    server, seen = script(lists=[[]], watches=[end] * 9), list[int]()

    async def pause(seconds: float) -> None:
        assert 0 < seconds <= 3600
        seen.append(sum(each.startswith("watch") for each in server.requests))
        if len(seen) == 3:
            await asyncio.Event().wait()

    slow = SimpleNamespace(**vars(asyncio) | {"sleep": pause})
    monkeypatch.setattr(watch_module, "asyncio", slow)
    monkeypatch.setattr(watch_module, "_PAUSE_S", 3600)
    await watching(server)
    await until(lambda: len(seen) == 3)
    assert seen == [1, 2, 3]


async def test_a_pod_deleted_between_watches_is_gone_after_the_next_list(
    watching: Any,
) -> None:
    watch = await watching(script(lists=[[pod("a", version="9")], []], watches=[410, []]))
    with watch.follow("a") as follower:
        await asyncio.wait_for(follower.changed(), PATIENCE_S)
        assert follower.gone


async def test_a_lost_connection_goes_on_at_the_last_bookmark(watching: Any) -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "30"}})
    server = script(lists=[[]], watches=[[bookmark], [event("ADDED", pod("a", version="31"))]])
    watch = await watching(server)
    with watch.follow("a") as follower:
        await asyncio.wait_for(follower.changed(), PATIENCE_S)
        assert follower.pod.metadata.uid == "a"
    assert server.requests == ["GET", "watch from 10", "watch from 30"]


async def test_a_silent_connection_counts_as_dead(
    watching: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swe_rollout.cluster.transport.WATCH_SILENCE_S", 0.2)
    server = script(lists=[[]], watches=[])
    await watching(server)
    await until(lambda: server.requests.count("watch from 10") >= 2)


async def test_a_line_of_any_length_is_read(watching: Any) -> None:
    big = pod("a", version="11")
    big["metadata"]["annotations"] = {"note": "x" * 300_000}
    watch = await watching(script(lists=[[]], watches=[[event("ADDED", big)]]))
    with watch.follow("a") as follower:
        await asyncio.wait_for(follower.changed(), PATIENCE_S)
        assert follower.pod.metadata.uid == "a"


@pytest.mark.parametrize(
    "line",
    [
        b"<html>502 Bad Gateway</html>",
        b'{"type": "MODIFIED", "object"',
        b'{"type": "MODIFIED", "object": {"metadata": {"uid": 7}}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=["a page", "half a line", "no pod", "no text", "nested"],
)
async def test_after_a_line_that_can_not_be_read_everything_is_listed_again(
    watching: Any, line: bytes
) -> None:
    """What it said is lost: a pod that went and one that came may have been in it."""
    lists = [
        [pod("a", version="9"), pod("b", version="9")],
        [pod("a", version="20", phase="Running"), pod("c", version="20")],
    ]
    later = event("MODIFIED", pod("a", version="21", phase="Succeeded"))
    server = script(lists=lists, watches=[[line, later], [], []])
    watch = await watching(server)
    with watch.follow("a") as changed, watch.follow("b") as gone:
        await asyncio.wait_for(changed.changed(), PATIENCE_S)
        await asyncio.wait_for(gone.changed(), PATIENCE_S)
        # Nothing behind that line counts: it may be as broken.
        assert changed.pod.status.phase == "Running"
        assert gone.gone
    assert watch.pod("c") is not None
    await until(lambda: len(server.requests) >= 4)
    assert server.requests[:4] == ["GET", "watch from 10", "GET", "watch from 10"]


async def test_a_list_of_something_else_is_asked_for_again(watching: Any) -> None:
    lists = [[pod("a", version="9")], [{"metadata": 7}], [pod("a", version="20", phase="Running")]]
    watch = await watching(script(lists=lists, watches=[410, []]))
    with watch.follow("a") as follower:
        await asyncio.wait_for(follower.changed(), PATIENCE_S)
        assert follower.pod.status.phase == "Running"


async def test_followers_get_an_error_when_watching_is_forbidden(watching: Any) -> None:
    watch = await watching(script(lists=[[pod("a", version="9")]], watches=[403]))
    with watch.follow("a") as follower, pytest.raises(ApiError):
        await asyncio.wait_for(follower.changed(), PATIENCE_S)


async def test_who_follows_a_pod_after_the_refusal_gets_the_error_too(watching: Any) -> None:
    watch = await watching(script(lists=[[pod("a", version="9")]], watches=[403]))
    with watch.follow("a") as follower, pytest.raises(ApiError):
        await asyncio.wait_for(follower.changed(), PATIENCE_S)
    with watch.follow("b") as follower, pytest.raises(ApiError):
        await asyncio.wait_for(follower.changed(), PATIENCE_S)


async def test_a_list_that_is_refused_fails_the_start(connect: Connect) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"code": 403, "reason": "Forbidden"}, status=403)

    watch = PodWatch(await connect(handler), namespace="default", selector="a=b")
    with pytest.raises(ApiError) as caught:
        await watch.start()
    assert caught.value.forbidden
