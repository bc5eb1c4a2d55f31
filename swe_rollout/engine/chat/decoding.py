"""Decode untrusted responses of chat APIs strictly: what is not the documented form is an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec

from swe_rollout.engine.chat.base import MAX_CALLS, MAX_ID_CHARS, ChatCall
from swe_rollout.engine.chat.errors import ApiError, error_from_response
from swe_rollout.engine.sglang.protocol import InvalidAnswerError, quoted

Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
_T = TypeVar("_T")


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
