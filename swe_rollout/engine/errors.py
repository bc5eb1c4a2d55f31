"""Errors of engines over HTTP: the types, what an error body says, and when to call again.

The statuses of SGLang are in `sglang.protocol`, those of chat APIs in `chat.errors`. Whether a call
is repeated depends only on the status and the server's own code, never on words in a message.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from itertools import count
from typing import Final, Self, TypeVar

import msgspec
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
)

from swe_rollout.errors import EngineError
from swe_rollout.text.redaction import redact
from swe_rollout.types.deadline import Deadline
from swe_rollout.types.retrying import retried

MAX_BODY_BYTES: Final = 2**20
"""The longest body of a response that is not a generation."""
_QUOTED_CHARACTERS: Final = 500
_ERROR_BYTES: Final = 65_536
"""The longest error body to parse as JSON; a longer one is taken as text."""
_T = TypeVar("_T")


class ContextOverflowError(EngineError):
    """The request does not fit into the model's context."""

    def __init__(self, what: str, *, why: str = "") -> None:
        fix = "lower spec.limits.contextTokens to the engine's context length"
        super().__init__(what, why=why, fix=fix, retryable=False)


class BadRequestError(EngineError):
    """The engine rejects the request itself; sending it again can't help."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix, retryable=False)


class UnauthorizedError(EngineError):
    """The engine rejects the key."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        fix: str = "set spec.policy.sglang.apiKeyEnv to the variable that holds the engine's key",
    ) -> None:
        super().__init__(what, why=why, fix=fix, retryable=False)


class UnavailableError(EngineError):
    """The engine is up but accepts no more work now, for example because its queue is full."""

    def __init__(self, what: str, *, why: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(what, why=why, fix="lower spec.parallelism, or add engines")
        self.retry_after_s = retry_after_s


class CallLoss(StrEnum):
    """How a call was lost: whether it may still be running, and whether its engine is down."""

    UNREACHABLE = "unreachable"
    """No connection, so nothing was sent."""
    UPSTREAM = "upstream"
    """A router lost its worker or has none."""
    DROPPED = "dropped"
    """The connection ended during the call."""
    UNRESPONSIVE = "unresponsive"
    """The engine no longer responds to anything."""
    FAILED = "failed"
    """The engine reported an internal failure; it is up."""
    TIMED_OUT = "timed_out"
    """No response within the time of one generation; the engine is up."""


class EngineLostError(EngineError):
    """The engine did not respond, died during the call, or failed internally."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        fix: str = "look at the engine's log",
        loss: CallLoss = CallLoss.FAILED,
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.loss = loss


class OversizedResponseError(EngineLostError):
    """The engine sends more than any valid response can have, or hides how much."""


class InvalidAnswerError(EngineError):
    """The engine's response can't be trained on."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The content of an error body in any of its formats."""

    message: str
    codes: frozenset[str] = frozenset()
    """The `type` and `code`, if they are words."""
    status: int | None = None
    """A `code` that is an HTTP status, as gateways send it inside a 200."""
    is_from_router: bool = False
    """A router's `code` is a word; an SGLang server's repeats the status."""

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read `error` as an object or text, `message` or `detail`; any other body is a message."""
        match _decoded(body):
            case {"error": {"message": str(message), **fields}}:
                return cls._of(message, fields)
            case {"object": "error", "message": str(message), **fields}:
                return replace(cls._of(message, fields), is_from_router=False)
            case {"error": str(message)} | {"message": str(message)} | {"detail": str(message)}:
                return cls(message)
            case _:
                return cls(body[:_ERROR_BYTES].decode(errors="replace"))

    @classmethod
    def _of(cls, message: str, fields: dict[object, object]) -> Self:
        code, words = fields.get("code"), (fields.get("type"), fields.get("code"))
        return cls(
            message,
            frozenset(word for word in words if isinstance(word, str)),
            code if isinstance(code, int) and code in _ERROR_STATUSES else None,
            is_from_router=isinstance(code, str),
        )


REDIRECTS: Final = range(300, 400)
CLIENT_ERRORS: Final = range(400, 500)
SERVER_ERROR: Final = 500
"""The lowest HTTP status that reports a server failure."""
_ERROR_STATUSES: Final = range(400, 600)


def _decoded(body: bytes) -> object:
    if len(body) > _ERROR_BYTES:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def quoted(text: str) -> str:
    """Return the beginning of a server's text on one line, for an error."""
    # Redact secrets before cutting the text: half of one might go unnoticed.
    line = " ".join(text[: 4 * _QUOTED_CHARACTERS].split())
    return redact(line)[:_QUOTED_CHARACTERS]


def parse_retry_after(value: str | None, *, date: str | None = None) -> float | None:
    """Parse a Retry-After header in seconds: a number or a date; None if it is invalid.

    `date` is the Date header beside it, from the same clock; this machine's may be wrong.
    """
    if value is None:
        return None
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value.strip()):
        return float(value)
    if (moment := _moment(value)) is None:
        return None
    now = _moment(date or "") or datetime.now(UTC)
    return max(0.0, (moment - now).total_seconds())


def _moment(header: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(header[:64])
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def is_retryable(error: BaseException, losses: Collection[CallLoss] = (CallLoss.FAILED,)) -> bool:
    """Whether the same call may succeed a little later after being lost in one of these ways."""
    match error:
        case OversizedResponseError():
            return False
        case EngineLostError():
            return error.loss in losses
        case _:
            return isinstance(error, UnavailableError)


def stopped_clock(clock: Deadline | None) -> AbstractContextManager[None]:
    """Stop an episode's clock, if there is one, inside the block."""
    return nullcontext() if clock is None else clock.paused()


@dataclass(frozen=True, slots=True)
class Retries:
    """Repeats calls to one engine: after its Retry-After, or else after a growing pause."""

    retries: int
    backoff: Callable[[RetryCallState], float]
    jitter: Callable[[RetryCallState], float]
    """Added to each pause, so that refused episodes do not come back at once."""
    max_wait_s: float
    """The longest pause, whatever the engine asks for."""
    may_succeed: Callable[[BaseException], bool] = is_retryable

    async def run(self, call: Callable[[int], Awaitable[_T]], clock: Deadline | None) -> _T:
        """Return the result of `call`, whose argument is the attempt's number from 1.

        The episode's clock is stopped between two attempts: the wait is not its fault.
        """
        numbers = count(1)

        async def pause(seconds: float) -> None:
            with stopped_clock(clock):
                await asyncio.sleep(seconds)

        def retrying() -> AsyncRetrying:
            return AsyncRetrying(
                stop=stop_after_attempt(self.retries + 1),
                wait=self._wait_s,
                retry=retry_if_exception(self.may_succeed),
                sleep=pause,
                reraise=True,
            )

        return await retried(lambda: call(next(numbers)), retrying)

    def _wait_s(self, state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome else None
        asked = failure.retry_after_s if isinstance(failure, UnavailableError) else None
        pause = self.backoff(state) if asked is None else asked
        return min(pause, self.max_wait_s) + self.jitter(state)
