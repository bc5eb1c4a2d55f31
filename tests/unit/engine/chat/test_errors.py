"""Errors of chat APIs by status and code; what is called again, and when (WE13)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from swe_rollout.engine.chat.errors import error_from_response
from swe_rollout.engine.chat.http import SENT_AGAIN
from swe_rollout.engine.errors import (
    BadRequestError,
    CallLoss,
    ContextOverflowError,
    EngineLostError,
    InvalidAnswerError,
    OversizedResponseError,
    UnauthorizedError,
    UnavailableError,
    is_retryable,
    parse_retry_after,
)
from swe_rollout.errors import EngineError


def openai(message: str, **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, "param": None, **fields}}).encode()


def anthropic(kind: str, message: str) -> bytes:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return json.dumps(body).encode()


CASES: list[tuple[int, bytes, type[EngineError], bool]] = [
    (400, openai("bad", type="invalid_request_error"), BadRequestError, False),
    (400, openai("too long", code="context_length_exceeded"), ContextOverflowError, False),
    (
        400,
        anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        ContextOverflowError,
        False,
    ),
    (413, anthropic("request_too_large", "Request exceeds"), ContextOverflowError, False),
    (401, anthropic("authentication_error", "invalid x-api-key"), UnauthorizedError, False),
    (402, b"", BadRequestError, False),
    (403, openai("no"), UnauthorizedError, False),
    (403, anthropic("billing_error", "pay"), BadRequestError, False),
    (404, anthropic("not_found_error", "model: x"), BadRequestError, False),
    (408, b"", UnavailableError, True),
    (429, openai("slow", code="rate_limit_exceeded", type="requests"), UnavailableError, True),
    (429, openai("pay", code="insufficient_quota"), BadRequestError, False),
    (429, anthropic("rate_limit_error", "This would exceed"), UnavailableError, True),
    (500, anthropic("api_error", "Internal server error"), EngineLostError, True),
    (502, b"<html>Bad gateway</html>", EngineLostError, True),
    (503, openai("overloaded"), UnavailableError, True),
    (504, b"", EngineLostError, True),
    (529, anthropic("overloaded_error", "Overloaded"), UnavailableError, True),
    (302, b"", BadRequestError, False),
    (418, b"", BadRequestError, False),
]


@pytest.mark.parametrize(("status", "body", "kind", "again"), CASES)
def test_a_status_has_an_error_of_its_own(
    status: int, body: bytes, kind: type[EngineError], *, again: bool
) -> None:
    error = error_from_response(status, body)
    assert type(error) is kind
    assert is_retryable(error, SENT_AGAIN) is again
    assert f"HTTP {status}" in error.why
    assert error.fix


@pytest.mark.parametrize("words", ["429", "rate limit", "500 of 4000 tokens", "timeout", "retry"])
def test_words_decide_no_retry_we13(words: str) -> None:
    assert not is_retryable(error_from_response(400, openai(words)))
    assert is_retryable(error_from_response(500, openai(f"400 {words}")))


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (EngineLostError("x", loss=CallLoss.DROPPED), True),
        (EngineLostError("x", loss=CallLoss.UNREACHABLE), True),
        (OversizedResponseError("x"), False),
        (InvalidAnswerError("x"), False),
        (RuntimeError("x"), False),
    ],
)
def test_lost_calls_are_sent_again_and_others_not(error: Exception, *, again: bool) -> None:
    assert is_retryable(error, SENT_AGAIN) is again


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"[" * 200_000, b'{"error": 5}', b'{"error": {"message": []}}']
)
def test_any_body_makes_an_error(body: bytes) -> None:
    assert isinstance(error_from_response(400, body), BadRequestError)


def test_an_error_quotes_little() -> None:
    assert len(error_from_response(400, openai("x" * 100_000)).why) < 600


def test_retry_after_is_seconds_or_a_date() -> None:
    assert parse_retry_after("20") == 20
    assert parse_retry_after(" 0.5 ") == 0.5
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert 50 < (parse_retry_after(soon) or 0) <= 60
    assert parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    ahead = datetime.now(UTC) + timedelta(days=1)
    then = format_datetime(ahead + timedelta(seconds=60), usegmt=True)
    assert parse_retry_after(then, date=format_datetime(ahead, usegmt=True)) == 60
    assert (parse_retry_after(then, date="soon") or 0) > 86_000
    for nonsense in (None, "", "-1", "soon", "1e9", "nan", "9" * 400, "Wed, 99 Oct 2015"):
        assert parse_retry_after(nonsense) is None
    for nonsense in ("Wed, 21 Oct 99999999999 07:28:00 GMT", f"Wed, 21 Oct 2015 07:28 +{9**40}"):
        assert parse_retry_after(nonsense) is None
