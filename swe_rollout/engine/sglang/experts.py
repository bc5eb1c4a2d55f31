"""Decode the routed experts of a `/generate` response. Used by `sglang.responses`."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import numpy as np

from swe_rollout.engine.errors import InvalidAnswerError
from swe_rollout.tokens.replay import ExpertShape

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIRECT = "name the servers themselves in spec.policy.sglang.workers: routers drop such fields"


def decode_experts(
    encoded: str | None, shape: ExpertShape, *, rows: int, start: int
) -> NDArray[np.int32]:
    """Decode rows `[start, rows)`, sent as int32 in C order."""
    if encoded is None:
        raise InvalidAnswerError(
            "the engine returned no routed experts",
            fix=f"start it with --enable-return-routed-experts; {DIRECT}",
        )
    try:
        flat = np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<i4")
        received = flat.reshape(-1, shape.layers, shape.topk)
    except (binascii.Error, ValueError) as error:
        raise InvalidAnswerError(
            f"routed experts do not form rows of {shape.layers} layers with {shape.topk} experts",
            why=str(error),
            fix="set spec.policy.sglang.record.routedExperts to the model's own numbers",
        ) from error
    if len(received) == rows:
        # Engines that do not know the start field return all rows.
        received = received[start:]
    if len(received) != rows - start:
        count = len(received)
        raise InvalidAnswerError(f"{count} rows of routed experts instead of {rows - start}")
    if received.min(initial=0) < 0:
        raise InvalidAnswerError("a routed expert has a negative number")
    return received
