"""Errors of chat APIs: from status, type and code to a typed error, and when to call again.

What is retried depends on the status and on the API's own code alone, never on words in a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Final, Self, TypeVar

import msgspec

from swe_rollout.engine.chat.base import MAX_CALLS, MAX_ID_CHARS, ChatCall
from swe_rollout.engine.sglang.protocol import (
    BadRequestError,
    CallLoss,
    ContextOverflowError,
    EngineLostError,
    InvalidAnswerError,
    OversizedResponseError,
    UnauthorizedError,
    UnavailableError,
    quoted,
)
from swe_rollout.errors import EngineError
from swe_rollout.types.turn import FinishReason

_ERROR_BYTES: Final = 65_536
"""Of an error body that is read as JSON; a longer one is text."""
_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "request_too_large"})
_NO_QUOTA: Final = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_error", "billing_not_active"}
)
"""Codes of a 429 or 403 that waiting does not end."""
# Anthropic has no code for it. Only the words of the error depend on this, never a retry.
_OVERFLOW: Final = re.compile(r"prompt is too long|maximum context length|context window")
Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ApiError:
    """What an error body says."""

    message: str
    codes: frozenset[str] = frozenset()
    """Its `type` and its `code`."""
    status: int | None = None
    """A `code` that is an HTTP status, as gateways send it inside a 200."""

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read any body; one in no known form is a message as a whole."""
        match _decoded(body):
            case {"error": {"message": str(message), **rest}}:
                codes = {
                    value for key in ("type", "code") if isinstance(value := rest.get(key), str)
                }
                code = rest.get("code")
                status = code if isinstance(code, int) and 400 <= code < 600 else None  # noqa: PLR2004
                return cls(message, frozenset(codes), status)
            case {"error": str(message)} | {"message": str(message)} | {"detail": str(message)}:
                return cls(message)
            case _:
                return cls(body[:_ERROR_BYTES].decode(errors="replace"))


def error_from_response(
    status: int, body: bytes, *, retry_after: str | None = None, date: str | None = None
) -> EngineError:
    """Return the typed error of a response whose status is not 200, with two of its headers."""
    found = ApiError.parse(body)
    why = f"HTTP {status}: {quoted(found.message)}"
    match status:
        case 408 | 409 | 425 | 429 | 503 | 529 if not found.codes & _NO_QUOTA:
            after_s = parse_retry_after(retry_after, date=date)
            return UnavailableError("the API accepts no more work", why=why, retry_after_s=after_s)
        case _ if status >= 500:  # noqa: PLR2004 - the class of HTTP statuses
            return EngineLostError("the API failed", why=why, fix="try again later")
        case _:
            return _refusal(status, found, why)


def _refusal(status: int, found: ApiError, why: str) -> EngineError:
    """Return the error of a call that fails again however often it is sent."""
    match status:
        case 400 | 413 | 422 if found.codes & _OVERFLOW_CODES or _OVERFLOW.search(found.message):
            return ContextOverflowError("the conversation exceeds the model's context", why=why)
        case _ if status == 402 or found.codes & _NO_QUOTA:  # noqa: PLR2004 - payment required
            fix = "look at the account's billing and limits, and run the job again"
            return BadRequestError("the account has no quota left", why=why, fix=fix)
        case 401 | 403:
            fix = "set apiKeyEnv under spec.policy to the variable that holds a valid key"
            return UnauthorizedError("the API rejects the key", why=why, fix=fix)
        case 404 | 405:
            fix = "check url and model under spec.policy"
            return BadRequestError("the API knows no such address or model", why=why, fix=fix)
        case _ if 300 <= status < 400:  # noqa: PLR2004
            fix = "set url under spec.policy to where the API itself listens"
            return BadRequestError("the API sends the call elsewhere", why=why, fix=fix)
        case _:
            fix = "check model, limits and sampling of the job against what the API allows"
            return BadRequestError("the API rejects the request", why=why, fix=fix)


def is_retryable(error: BaseException) -> bool:
    """Whether the same call may succeed a little later."""
    match error:
        case OversizedResponseError():
            return False
        case EngineLostError():
            return error.loss in (CallLoss.UNREACHABLE, CallLoss.DROPPED, CallLoss.FAILED)
        case _:
            return isinstance(error, UnavailableError)


def parse_retry_after(value: str | None, *, date: str | None = None) -> float | None:
    """Read a Retry-After header in seconds: a number or a date; None for nonsense.

    `date`: the Date header beside it, whose clock the other one is of; this machine's may be off.
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


def finish_reason(name: str | None, reasons: dict[str, FinishReason]) -> FinishReason:
    """Translate why a message ended; InvalidAnswerError for a reason that nobody documented."""
    found = reasons.get(name or "")
    if found is None:
        raise InvalidAnswerError(f"unknown finish reason {(name or 'null')[:80]!r}")
    return found


def _decoded(body: bytes) -> object:
    if len(body) > _ERROR_BYTES:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """Decode the body of a 200. Raises EngineError: for an error inside it, that error's own."""
    try:
        # What is kept raw is not looked into otherwise.
        body.decode()
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = ApiError.parse(body)
        if found.status is not None:
            # Gateways send the error of the API behind them with a 200 of their own.
            raise error_from_response(found.status, body) from error
        raise InvalidAnswerError(
            "the API's response has not the documented form",
            why=f"{error}; it begins {quoted(found.message)[:80]!r}",
            fix="check url and the kind of API under spec.policy",
        ) from error


def checked_calls(calls: Sequence[ChatCall]) -> tuple[ChatCall, ...]:
    """Check that results can refer to each call; raises InvalidAnswerError."""
    if len(calls) > MAX_CALLS:
        raise InvalidAnswerError(f"one message has {len(calls)} calls")
    ids = {call.id for call in calls}
    if len(ids) != len(calls) or not all(0 < len(each) <= MAX_ID_CHARS for each in ids):
        raise InvalidAnswerError("the calls of a message have no ids of their own")
    return tuple(calls)
