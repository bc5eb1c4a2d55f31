"""EngineControl: load new weights into one server by pause, load and resume.

Use the servers' own addresses: routers do not forward these requests. `update_weights_on` updates
many servers at once. Used by `swe-rollout engine update-weights`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import msgspec

from swe_rollout.engine.errors import EngineLostError, ErrorBody, quoted
from swe_rollout.engine.sglang.connection import OK, UNKNOWN_PATH, EngineConnection, EngineResponse
from swe_rollout.errors import EngineError

RESUME_S = 60.0
"""The time limit of a request that should be quick."""
WEIGHTS_S = 1800.0
"""The time limit for loading weights, and for a pause that waits for running generations."""


class PauseMode(StrEnum):
    """What happens to running generations when a server is paused."""

    ABORT = "abort"
    """They return the tokens sampled so far; agent loops continue them with the new weights."""
    IN_PLACE = "in_place"
    """They freeze, and continue on the KV cache computed with the old weights."""
    RETRACT = "retract"
    """They return to the queue; their prompt is processed again with the new weights."""


class EngineControlError(EngineError):
    """A server did not carry out a control request."""


class _UpdateResult(msgspec.Struct, frozen=True):
    success: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """The weights to load, and how to load them."""

    model_path: str
    """A folder that the servers can see."""
    version: str
    """The version that marks every token sampled with these weights."""
    mode: PauseMode = PauseMode.RETRACT


@dataclass(frozen=True, slots=True)
class WeightUpdateResult:
    """The result of an update on one server."""

    url: str
    error: EngineControlError | None = None
    """Why the server does not have the weights; None if it has them."""


class EngineControl:
    """Control requests to one server; each is done when its call returns.

    Every method raises EngineControlError, which names the server and quotes its response.
    """

    def __init__(self, url: str, *, api_key_env: str | None = None) -> None:
        """`url` is the server's own address; `api_key_env` names the variable with its key."""
        self.url = url
        self._connection = EngineConnection(url, api_key_env=api_key_env)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.aclose()

    async def pause(self, mode: PauseMode = PauseMode.RETRACT) -> None:
        """Stop sampling until `resume`; new calls wait in the server."""
        await self._post("/pause_generation", {"mode": mode.value}, timeout_s=WEIGHTS_S)

    async def resume(self) -> None:
        """Continue sampling; has no effect on a server that is not paused."""
        await self._post("/continue_generation", {}, timeout_s=RESUME_S)

    async def load_weights(
        self, model_path: str, *, version: str, flush_cache: bool = True
    ) -> None:
        """Load other weights; unless it is paused, the server first finishes its generations."""
        order: dict[str, str | bool] = {
            "model_path": model_path,
            "weight_version": version,
            "flush_cache": flush_cache,
            "abort_all_requests": False,
        }
        response = await self._post("/update_weights_from_disk", order, timeout_s=WEIGHTS_S)
        try:
            result = msgspec.json.decode(response.body, type=_UpdateResult)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._failed("did not report on the new weights", str(error)) from error
        if not result.success:
            raise self._failed("did not load the weights", quoted(result.message))

    async def update_weights(self, update: WeightUpdate) -> None:
        """Pause, load the weights, resume; also resumes after an error, which it then raises."""
        try:
            await self.pause(update.mode)
            # Frozen generations need the cache: it can't be flushed under them.
            flush = update.mode is not PauseMode.IN_PLACE
            await self.load_weights(update.model_path, version=update.version, flush_cache=flush)
        except asyncio.CancelledError:
            await self.resume()
            raise
        except EngineControlError as first:
            await self._resume_after(first)
            raise
        await self.resume()

    async def _resume_after(self, first: EngineControlError) -> None:
        try:
            await self.resume()
        except EngineControlError as second:
            what = "failed, and may still be paused"
            raise self._failed(what, f"{first}; then {second}", fix=first.fix) from second

    async def _post(
        self, path: str, order: dict[str, str | bool], *, timeout_s: float
    ) -> EngineResponse:
        try:
            body = msgspec.json.encode(order)
            response = await self._connection.post(path, body, timeout_s=timeout_s)
        except EngineLostError as lost:
            fix = "start the server, or name its root: http://HOST:PORT"
            raise self._failed(f"did not respond to {path}", lost.why, fix=fix) from lost
        if response.status != OK:
            raise self._rejected(path, response)
        return response

    def _rejected(self, path: str, response: EngineResponse) -> EngineControlError:
        text = quoted(ErrorBody.parse(response.body).message)
        return self._failed(
            f"rejected POST {path}",
            f"HTTP {response.status}: {text}",
            fix="name the servers themselves: a router does not forward this request"
            if response.status == UNKNOWN_PATH
            else "look at the engine's log",
        )

    def _failed(self, what: str, why: str, fix: str = "") -> EngineControlError:
        return EngineControlError(f"the engine at {self.url} {what}", why=why, fix=fix)


async def update_weights_on(
    engines: Sequence[EngineControl], update: WeightUpdate
) -> tuple[WeightUpdateResult, ...]:
    """Update all servers at once; return the results in order. A failure stops no other update."""

    async def one(engine: EngineControl) -> WeightUpdateResult:
        try:
            await engine.update_weights(update)
        except EngineControlError as error:
            return WeightUpdateResult(engine.url, error)
        return WeightUpdateResult(engine.url)

    return tuple(await asyncio.gather(*map(one, engines)))
