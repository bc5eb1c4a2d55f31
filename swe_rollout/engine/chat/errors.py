"""Shared by the formats of chat APIs: typed errors by status and code, and checks of a message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final, TypeVar

import msgspec

from swe_rollout.engine.chat.base import MAX_CALLS, MAX_ID_CHARS, ChatCall
from swe_rollout.engine.errors import (
    REDIRECTS,
    SERVER_ERROR,
    BadRequestError,
    ContextOverflowError,
    EngineLostError,
    ErrorBody,
    InvalidAnswerError,
    UnauthorizedError,
    UnavailableError,
    parse_retry_after,
    quoted,
)
from swe_rollout.errors import EngineError
from swe_rollout.types.turn import FinishReason

_OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "request_too_large"})
_NO_QUOTA: Final = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_error", "billing_not_active"}
)
"""Codes of a 429 or 403 for which waiting does not help."""
# Anthropic has no code for it. This affects only the error's text, never a retry.
_OVERFLOW: Final = re.compile(r"prompt is too long|maximum context length|context window")
Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_T = TypeVar("_T")


def error_from_response(
    status: int, body: bytes, *, retry_after: str | None = None, date: str | None = None
) -> EngineError:
    """Return the typed error of a response with a status other than 200, and two of its headers."""
    found = ErrorBody.parse(body)
    why = f"HTTP {status}: {quoted(found.message)}"
    match status:
        case 408 | 409 | 425 | 429 | 503 | 529 if not found.codes & _NO_QUOTA:
            after_s = parse_retry_after(retry_after, date=date)
            return UnavailableError("the API accepts no more work", why=why, retry_after_s=after_s)
        case _ if status >= SERVER_ERROR:
            return EngineLostError("the API failed", why=why, fix="try again later")
        case _:
            return _refusal(status, found, why)


def _refusal(status: int, found: ErrorBody, why: str) -> EngineError:
    """Return the error of a call that fails again whenever it is sent."""
    match status:
        case 400 | 413 | 422 if found.codes & _OVERFLOW_CODES or _OVERFLOW.search(found.message):
            return ContextOverflowError("the conversation exceeds the model's context", why=why)
        case _ if status == HTTPStatus.PAYMENT_REQUIRED or found.codes & _NO_QUOTA:
            fix = "look at the account's billing and limits, and run the job again"
            return BadRequestError("the account has no quota left", why=why, fix=fix)
        case 401 | 403:
            fix = "set apiKeyEnv under spec.policy to the variable that holds a valid key"
            return UnauthorizedError("the API rejects the key", why=why, fix=fix)
        case 404 | 405:
            fix = "check url and model under spec.policy"
            return BadRequestError("the API knows no such address or model", why=why, fix=fix)
        case _ if status in REDIRECTS:
            fix = "set url under spec.policy to where the API itself listens"
            return BadRequestError("the API sends the call elsewhere", why=why, fix=fix)
        case _:
            fix = "check model, limits and sampling of the job against what the API allows"
            return BadRequestError("the API rejects the request", why=why, fix=fix)


def finish_reason(name: str | None, reasons: dict[str, FinishReason]) -> FinishReason:
    """Translate why a message ended; raises InvalidAnswerError for an undocumented reason."""
    found = reasons.get(name or "")
    if found is None:
        raise InvalidAnswerError(f"unknown finish reason {(name or 'null')[:80]!r}")
    return found


def decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """Decode the body of a 200. Raises EngineError, also for an error that the body contains."""
    try:
        # What is kept raw is not inspected otherwise.
        body.decode()
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = ErrorBody.parse(body)
        if found.status is not None:
            # Gateways send the error of the API behind them inside their own 200.
            raise error_from_response(found.status, body) from error
        raise InvalidAnswerError(
            "the API's response has not the documented form",
            why=f"{error}; it begins {quoted(found.message)[:80]!r}",
            fix="check url and the kind of API under spec.policy",
        ) from error


def checked_calls(calls: Sequence[ChatCall]) -> tuple[ChatCall, ...]:
    """Check that a result can refer to each call; raises InvalidAnswerError."""
    if len(calls) > MAX_CALLS:
        raise InvalidAnswerError(f"one message has {len(calls)} calls")
    ids = {call.id for call in calls}
    if len(ids) != len(calls) or not all(0 < len(each) <= MAX_ID_CHARS for each in ids):
        raise InvalidAnswerError("the calls of a message have no ids of their own")
    return tuple(calls)
