"""HealthProbe: whether a server responds, whether it is paused, and its load, in milliseconds.

It does not use `/health`, which samples a token and returns 503 from a paused engine, or a router's
`/readiness`, which reports a dead worker as healthy for a minute. Used by `pool.replica`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
import structlog

from swe_rollout.engine.errors import SERVER_ERROR, CallLoss, EngineLostError
from swe_rollout.engine.sglang.connection import OK, EngineConnection
from swe_rollout.spec.addresses import MAX_ADDRESS_CHARS, engine_address

log = structlog.get_logger()
_T = TypeVar("_T")
_NOT_READY = 503


class ReplicaState(StrEnum):
    """What a server does with calls."""

    READY = "ready"
    PAUSED = "paused"
    """Calls wait in the server, unanswered and with their clocks stopped, until it resumes."""
    DOWN = "down"
    """The server does not respond."""


_Calls = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class _Load(msgspec.Struct, frozen=True):
    num_running_reqs: _Calls = 0
    num_waiting_reqs: _Calls = 0


class Loads(msgspec.Struct, frozen=True):
    """The fields of `/v1/loads` that are used."""

    loads: Annotated[list[_Load], msgspec.Meta(max_length=1024)]

    @property
    def calls(self) -> int:
        """Number of generations running or waiting."""
        return sum(load.num_running_reqs + load.num_waiting_reqs for load in self.loads)


class _Worker(msgspec.Struct, frozen=True):
    url: Annotated[str, msgspec.Meta(max_length=MAX_ADDRESS_CHARS)]


class _Workers(msgspec.Struct, frozen=True):
    workers: Annotated[list[_Worker], msgspec.Meta(max_length=256)]


class HealthProbe:
    """Checks one server, or a router and the servers behind it."""

    def __init__(
        self, url: str, *, api_key_env: str | None, timeout_s: float, workers: Sequence[str] = ()
    ) -> None:
        """Probe a server, or a router at `url` and the `workers` behind it."""
        self._server = EngineConnection(url, api_key_env=api_key_env)
        self._api_key_env = api_key_env
        self._timeout_s = timeout_s
        self._workers: tuple[EngineConnection, ...] = ()
        self.set_workers(workers)

    @property
    def workers(self) -> tuple[str, ...]:
        """The servers behind a router; empty for a server, and until a router has named any."""
        return tuple(worker.url for worker in self._workers)

    def set_workers(self, urls: Sequence[str]) -> None:
        """Also check these servers behind the router."""
        key = self._api_key_env
        self._workers = tuple(EngineConnection(url, api_key_env=key) for url in urls)

    async def check(self) -> ReplicaState:
        """Return READY or PAUSED; raises EngineLostError if no server would take calls."""
        own: ReplicaState | None = None
        try:
            own = await self._check(self._server)
        except EngineLostError as lost:
            if lost.loss is CallLoss.UNREACHABLE or not self._workers:
                raise
        behind = await asyncio.gather(*map(self._check_worker, self._workers))
        results = [each for each in (own, *behind) if each is not None]
        if not results:
            what = f"no server responds behind {self._server.url}"
            raise EngineLostError(what, loss=CallLoss.UPSTREAM)
        # Only the router knows which worker has which call: one paused worker is enough.
        return ReplicaState.PAUSED if ReplicaState.PAUSED in results else ReplicaState.READY

    async def count_calls(self) -> int | None:
        """Count the running and waiting generations of all clients; None if it is not reported."""
        loads = await self._get("/v1/loads", Loads)
        return None if loads is None else loads.calls

    async def list_workers(self) -> tuple[str, ...]:
        """Ask a router for its servers; empty for a server or an address without an engine."""
        found = await self._get("/workers", _Workers)
        try:
            return (
                () if found is None else tuple(engine_address(each.url) for each in found.workers)
            )
        except ValueError as error:
            log.warning("workers_refused", url=self._server.url, why=str(error))
            return ()

    async def aclose(self) -> None:
        await asyncio.gather(*(each.aclose() for each in (self._server, *self._workers)))

    async def _check_worker(self, server: EngineConnection) -> ReplicaState | None:
        try:
            return await self._check(server)
        except EngineLostError:
            return None

    async def _check(self, server: EngineConnection) -> ReplicaState:
        ready = await server.get("/ready", timeout_s=self._timeout_s)
        if ready.status == OK:
            return ReplicaState.READY
        # A paused engine returns 503 there. So does a starting one, but without model information.
        # Older engines and routers don't know the path.
        info = await server.model_info(timeout_s=self._timeout_s)
        if info.status >= SERVER_ERROR:
            raise EngineLostError(
                f"what listens at {server.url} responds, but its engine does not",
                why=f"HTTP {info.status}",
                loss=CallLoss.UPSTREAM,
            )
        is_paused = ready.status == _NOT_READY and info.status == OK
        return ReplicaState.PAUSED if is_paused else ReplicaState.READY

    async def _get(self, path: str, kind: type[_T]) -> _T | None:
        response = await self._server.get(path, timeout_s=self._timeout_s)
        if response.status != OK:
            return None
        try:
            return msgspec.json.decode(response.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
