"""The scripted server's replay data: routed experts, sampling masks and prompt logprobs.

Each value is derived from its position and id alone, so a reader can check that it is where it
belongs. Used by `scripted.server`; decoded by `sglang.responses`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from swe_rollout.tokens.replay import ExpertShape

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXPERTS = 128


class RequestedReplay(msgspec.Struct, frozen=True):
    """The request fields that ask for replay data, as the server decodes them."""

    logprob_start_len: int = -1
    return_routed_experts: bool = False
    routed_experts_start_len: int = 0
    return_sampling_mask: bool = False


def experts_of(ids: Sequence[int], shape: ExpertShape) -> NDArray[np.int32]:
    """Return int32 `[len(ids), layers, topk]`: the experts that each id is routed to."""
    each = np.arange(shape.layers * shape.topk, dtype=np.int32).reshape(shape.layers, shape.topk)
    return (np.asarray(ids, dtype=np.int32)[:, None, None] + each) % np.int32(EXPERTS)


def prompt_logprob(token_id: int) -> float:
    """Return the logprob of a prompt id."""
    return -(token_id % 64) / 8


def replay_meta(
    requested: RequestedReplay,
    prompt: Sequence[int],
    output: Sequence[int],
    experts: ExpertShape | None,
) -> dict[str, object]:
    """Return the requested keys of `meta_info`; `experts` is the server's own setting."""
    meta: dict[str, object] = {}
    if requested.logprob_start_len >= 0:
        returned = prompt[requested.logprob_start_len :]
        meta["input_token_logprobs"] = [
            [prompt_logprob(token_id) if position else None, token_id, None]
            for position, token_id in enumerate(returned)
        ]
    if requested.return_routed_experts and experts is not None:
        rows = experts_of([*prompt, *output][:-1], experts)[requested.routed_experts_start_len :]
        meta["routed_experts"] = base64.b64encode(rows.tobytes()).decode()
    if requested.return_sampling_mask:
        meta["output_token_sampling_mask"] = [[token_id] for token_id in output]
        meta["output_token_sampling_logprobs"] = [0.0] * len(output)
        meta["output_token_sampling_mask_length"] = len(output)
    return meta
