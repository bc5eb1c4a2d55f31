from __future__ import annotations

import pytest

from swe_rollout.engine.errors import (
    BadRequestError,
    ContextOverflowError,
    EngineLostError,
    InvalidAnswerError,
    OversizedResponseError,
    UnauthorizedError,
    UnavailableError,
)
from swe_rollout.engine.sglang import protocol
from swe_rollout.errors import EngineError, SweRolloutError, UnreachableError
from swe_rollout.integrations.strands.exceptions import (
    SGLangClientError,
    SGLangConnectionError,
    SGLangContextLengthError,
    SGLangDecodingError,
    SGLangHTTPError,
    SGLangThrottledError,
    client_error,
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ContextOverflowError("full"), SGLangContextLengthError),
        (UnavailableError("full"), SGLangThrottledError),
        (BadRequestError("bad"), SGLangHTTPError),
        (UnauthorizedError("key"), SGLangHTTPError),
        (InvalidAnswerError("no ids"), SGLangDecodingError),
        (OversizedResponseError("too long"), SGLangDecodingError),
        (EngineLostError("gone"), SGLangConnectionError),
        (UnreachableError("gone"), SGLangConnectionError),
        (EngineError("odd"), SGLangClientError),
    ],
)
def test_each_error_of_an_engine_has_its_name(
    error: SweRolloutError, kind: type[SGLangClientError]
) -> None:
    """S4."""
    assert type(client_error(error)) is kind
    assert issubclass(kind, SGLangClientError)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, "temperature must not exceed 2", SGLangHTTPError),
        (404, "path", SGLangHTTPError),
        (503, "queue full", SGLangThrottledError),
        (500, "crash", SGLangHTTPError),
    ],
)
def test_a_response_keeps_its_status_and_its_text(
    status: int, body: str, kind: type[SGLangHTTPError]
) -> None:
    """S4, WS7: "exceed" in a text is no full context."""
    found = client_error(protocol.error_from_response(status, body.encode()))
    assert type(found) is kind
    assert isinstance(found, SGLangHTTPError)
    assert (found.status, found.body) == (status, body)
