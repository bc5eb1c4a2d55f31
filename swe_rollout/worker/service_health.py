"""Watch the services that a worker depends on: the engine, the store, sandboxes.

`Conditions` collects unmet conditions for the operator; `EngineMonitor` holds episodes back while
the engine is down and excuses attempts that failed because of it; `StoreMonitor` watches the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, retry_if_result
from tenacity.wait import wait_chain, wait_exponential, wait_fixed

from swe_rollout.engine.base import TokenEngine
from swe_rollout.engine.chat.base import ChatEngine
from swe_rollout.engine.errors import UnavailableError
from swe_rollout.errors import Boundary, SweRolloutError, UnreachableError, cancel_all, is_down
from swe_rollout.spec.status import ConditionType, UnmetCondition
from swe_rollout.types.episode import Failure

log = structlog.get_logger()
_T = TypeVar("_T")

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
PROBE_S = 10.0
"""How often an engine that responds is probed."""
PAUSE_S = 60.0
"""Longer pauses are reported."""
BUSY_S = 10.0
"""The wait before retrying an engine that responds but accepts no calls."""
STORE_PATIENCE_S = 3600.0
"""How long finished episodes stay in memory; no more of them than run concurrently."""
_SANDBOXES = (Boundary.SANDBOX, Boundary.CLUSTER, Boundary.GRADER)
_MESSAGE_CHARS = 1000
_MET = {
    ConditionType.STORAGE_READY: "the store takes what it is given",
    ConditionType.MODEL_READY: "the engine responds",
    ConditionType.SANDBOXES_READY: "sandboxes start",
}
LOCAL_PATIENCE_S = 300.0
"""How long a local run, which somebody is watching, waits for a service before it stops."""


def back_off() -> wait_exponential:
    """Return the pauses between attempts to reach a service that is down."""
    return wait_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S)


class Conditions:
    """The job's conditions that this worker finds unmet, with one reason each."""

    def __init__(self, on_note: Callable[[str], None] | None = None) -> None:
        """`on_note` is called with a message whenever a condition becomes unmet or met."""
        self._by_condition: dict[ConditionType, UnmetCondition] = {}
        self._on_note = on_note or _no_note

    @property
    def unmet(self) -> tuple[UnmetCondition, ...]:
        """Return all unmet conditions, in the order of `ConditionType`."""
        return tuple(self._by_condition[each] for each in ConditionType if each in self)

    def __contains__(self, condition: ConditionType) -> bool:
        """Whether the condition is unmet."""
        return condition in self._by_condition

    def fail(self, condition: ConditionType, error: SweRolloutError) -> None:
        """Mark the condition as unmet because of `error`."""
        sentences = f"{error}. {error.fix}" if error.fix else str(error)
        self.mark(condition, type(error).__name__, sentences)

    def mark(self, condition: ConditionType, kind: str, message: str) -> None:
        """Mark the condition as unmet because of an error class named `kind`."""
        reason = kind.removesuffix("Error").lstrip("_")
        if condition not in self:
            log.warning(
                "condition_unmet", condition=condition.value, reason=reason, message=message
            )
            self._on_note(f"waiting: {_one_line(message)}")
        self._by_condition[condition] = UnmetCondition(
            condition=condition, reason=reason, message=_one_line(message)
        )

    def clear(self, condition: ConditionType) -> None:
        """Mark the condition as met."""
        if self._by_condition.pop(condition, None) is not None:
            log.info("condition_met", condition=condition.value)
            self._on_note(f"going on: {_MET[condition]}")

    async def until_reached(
        self, condition: ConditionType, call: Callable[[], Awaitable[_T]]
    ) -> _T:
        """Repeat `call` until its service responds; mark the condition unmet meanwhile."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(is_down),
            wait=back_off(),
            before_sleep=partial(self._failed, condition),
            reraise=True,
        )
        response: _T = await retrying(call)
        self.clear(condition)
        return response

    def _failed(self, condition: ConditionType, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, SweRolloutError):
            self.fail(condition, error)


@runtime_checkable
class Pausable(Protocol):
    """An engine that a trainer may pause."""

    @property
    def paused_s(self) -> float:
        """Return how long the engine has been paused; 0 if it is not."""
        ...


class EngineMonitor:
    """The `Services` of a scheduler: no episode loses attempts while the engine is down."""

    def __init__(
        self,
        engine: TokenEngine | ChatEngine,
        conditions: Conditions,
        *,
        is_wanted: Callable[[], Awaitable[bool]] | None = None,
        engine_patience_s: float | None = None,
        store_patience_s: float = STORE_PATIENCE_S,
    ) -> None:
        """`is_wanted` says whether the job still exists; None if only we end its sandboxes.

        Beyond its calls' own waits, an attempt waits `engine_patience_s` for the engine, or forever
        if that is None.
        """
        self.store_patience_s = store_patience_s
        self._patience_s = engine_patience_s
        self._why_down = UnreachableError("the engine does not respond")
        self._engine = engine
        self._conditions = conditions
        self._is_wanted = is_wanted
        self._is_up = asyncio.Event()
        self._is_up.set()
        self._is_paused = False

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Probe the engine while the block runs."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            await cancel_all(task)

    async def run(self) -> None:
        """Probe the engine until cancelled, more often while it is down."""
        while True:
            await asyncio.sleep(PROBE_S)
            await AsyncRetrying(
                retry=retry_if_result(lambda is_up: not is_up),
                wait=wait_chain(wait_fixed(FIRST_PAUSE_S), back_off()),
            )(self._probe)

    async def ready(self) -> None:
        """Wait until the engine responds to a probe.

        Raises UnreachableError if that takes too long.
        """
        try:
            async with asyncio.timeout(self._patience_s):
                await self._is_up.wait()
        except TimeoutError:
            raise UnreachableError(
                self._why_down.what, why=self._why_down.why, fix=self._why_down.fix
            ) from None

    async def excuses(self, failure: Failure) -> bool:
        """Whether the engine is unavailable, or the job was deleted along with its sandboxes.

        Waits until another attempt may succeed.
        """
        if failure.boundary in _SANDBOXES and not await self._is_still_wanted():
            # Kubernetes deletes in any order. This worker is next, so its attempt does not count.
            await asyncio.sleep(BUSY_S)
            return True
        if failure.boundary is not Boundary.ENGINE or not failure.retryable:
            return False
        if not await self._probe():
            return True
        if failure.type != UnavailableError.__name__ or self._patience_s is not None:
            return False  # the call itself has already waited, and a run must end
        # Don't use the failure's message: it quotes whatever responded at the job's address.
        busy = UnavailableError("the engine accepts no more work")
        self._conditions.fail(ConditionType.MODEL_READY, busy)
        await asyncio.sleep(BUSY_S)
        return True

    def store_failed(self, error: SweRolloutError) -> None:
        """Mark the store as down, with a trajectory waiting for it."""
        self._conditions.fail(ConditionType.STORAGE_READY, error)

    def store_responded(self) -> None:
        """Mark the store as healthy."""
        self._conditions.clear(ConditionType.STORAGE_READY)

    async def _is_still_wanted(self) -> bool:
        return self._is_wanted is None or await self._is_wanted()

    async def _probe(self) -> bool:
        try:
            await self._engine.info()
        except UnreachableError as error:
            self._why_down = error
            self._is_up.clear()
            self._conditions.fail(ConditionType.MODEL_READY, error)
            return False
        except Exception as error:  # noqa: BLE001 - of an engine of the user's own, which is there
            log.warning("engine_probe_failed", why=f"{type(error).__name__}: {error}")
        if not self._is_up.is_set():
            self._is_up.set()
            self._conditions.clear(ConditionType.MODEL_READY)
        self._note_pause()
        return True

    def _note_pause(self) -> None:
        """Report that the engine has been paused for longer than a weight update takes."""
        was_paused = self._is_paused
        self._is_paused = isinstance(self._engine, Pausable) and self._engine.paused_s > PAUSE_S
        if self._is_paused:
            self._conditions.mark(
                ConditionType.MODEL_READY,
                "EnginePaused",
                f"the engine has been paused for more than {PAUSE_S:g} s, and samples nothing. "
                "A trainer that died may have left it so: POST /continue_generation",
            )
        elif was_paused:
            self._conditions.clear(ConditionType.MODEL_READY)


class StoreMonitor:
    """Updates the store's condition from the outcome of every call to it.

    Kinds of calls are tracked separately: reads may succeed while a disk is full.
    """

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._failing = set[str]()

    def __call__(self, kind: str, error: UnreachableError | None) -> None:
        """Record how a call of this kind, such as `write`, ended, or that it is very slow."""
        if error is not None:
            self._failing.add(kind)
            self._conditions.fail(ConditionType.STORAGE_READY, error)
        elif kind in self._failing:
            self._failing.discard(kind)
            if not self._failing:
                self._conditions.clear(ConditionType.STORAGE_READY)


def _no_note(text: str) -> None:
    del text


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_CHARS else f"{line[:_MESSAGE_CHARS]}…"
