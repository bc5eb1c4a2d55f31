"""The exceptions of an SGLang client for Strands, by the names that its users catch.

    SGLangClientError
    ├── SGLangHTTPError             status, body
    │   ├── SGLangContextLengthError
    │   └── SGLangThrottledError
    ├── SGLangConnectionError
    └── SGLangDecodingError

`client_error` converts an `EngineError`. In a Strands agent, the context length becomes
`ContextWindowOverflowException` and throttling `ModelThrottledException`, as Strands expects.
"""

from __future__ import annotations

import re
from typing import Final

from swe_rollout.engine.errors import (
    BadRequestError,
    ContextOverflowError,
    EngineLostError,
    InvalidAnswerError,
    OversizedResponseError,
    UnauthorizedError,
    UnavailableError,
)
from swe_rollout.errors import SweRolloutError, UnreachableError, UsageError

_STATUS: Final = re.compile(r"HTTP (\d{3}): (.*)", re.DOTALL)
_HTTP: Final = (
    ContextOverflowError,
    UnavailableError,
    BadRequestError,
    UnauthorizedError,
)
"""Errors with an HTTP status, whoever detected them."""


class SGLangClientError(Exception):
    """A call of the engine failed."""


class SGLangHTTPError(SGLangClientError):
    """The engine responded with an error."""

    def __init__(self, message: str, *, status: int, body: str = "") -> None:
        """`status` is the HTTP status; `body` is the beginning of the engine's response."""
        super().__init__(message)
        self.status = status
        self.body = body


class SGLangContextLengthError(SGLangHTTPError):
    """The prompt does not fit into the model's context."""


class SGLangThrottledError(SGLangHTTPError):
    """The engine is up but accepts no more work now, after all retries."""


class SGLangConnectionError(SGLangClientError):
    """The engine can't be reached, or was lost during a call."""


class SGLangDecodingError(SGLangClientError):
    """The engine's response does not match the request, or can't be trained on."""


class HistoryError(UsageError):
    """The agent's messages don't continue what the policy read and sampled."""


class UnsupportedContentError(UsageError):
    """A message contains content that can't be kept as exact tokens, such as an image."""


_KINDS: Final = (
    (ContextOverflowError, SGLangContextLengthError, 400),
    (UnavailableError, SGLangThrottledError, 503),
    (EngineLostError, SGLangHTTPError, 500),
)
"""The class of an error with a status, and the status if the engine reported none."""


def client_error(error: SweRolloutError) -> SGLangClientError:
    """Return the exception that corresponds to an engine's error."""
    found = _STATUS.match(error.why)
    if found or isinstance(error, _HTTP):
        given = ((kind, usual) for of, kind, usual in _KINDS if isinstance(error, of))
        kind, usual = next(given, (SGLangHTTPError, 400))
        body = found[2] if found else error.why
        return kind(str(error), status=int(found[1]) if found else usual, body=body)
    match error:
        case InvalidAnswerError() | OversizedResponseError():
            return SGLangDecodingError(str(error))
        case EngineLostError() | UnreachableError():
            return SGLangConnectionError(str(error))
        case _:
            return SGLangClientError(str(error))
