"""Decode successful `/generate` responses: sampled ids, logprobs, weight versions, replay rows.

Pure functions over bytes. Responses are untrusted: one that is no such response is an error and
never repaired; `engine.checked` checks what it holds. Requests and error responses are in
`sglang.protocol`.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, TypeVar, assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.checked import check_logprobs
from swe_rollout.engine.errors import ErrorBody, InvalidAnswerError
from swe_rollout.engine.sglang import protocol
from swe_rollout.errors import EngineError
from swe_rollout.tokens.replay import ExpertShape, ReplayRows
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

_T = TypeVar("_T")
_ABSENT: Final = msgspec.Raw(b"null")
_Int = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
_DIRECT = "name the servers themselves in spec.policy.sglang.workers: routers drop such fields"


class _Finish(msgspec.Struct, frozen=True):
    type: str
    length: _Int | None = None
    matched: _Int | list[_Int] | str | None = None
    message: str = ""
    status_code: Annotated[int, msgspec.Meta(ge=100, le=599)] | None = None


class _Entry(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """One token of `*_token_logprobs`; thousands are alive at once, none of them in a cycle."""

    logprob: float | None
    id: _Int
    text: str | None


class _Meta(msgspec.Struct, frozen=True):
    """The metadata, whose lists are decoded only when needed and known to be no longer than
    requested: millions of empty items would block the event loop for seconds.
    """

    finish_reason: _Finish
    completion_tokens: _Int
    output_token_logprobs: msgspec.Raw = _ABSENT
    prompt_tokens: _Int | None = None
    """Absent if the request was aborted in the queue."""
    cached_tokens: _Int = 0
    num_retractions: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    weight_version: str | None = None
    weight_versions: msgspec.Raw = _ABSENT
    """Absent from older engines."""
    input_token_logprobs: msgspec.Raw = _ABSENT
    routed_experts: str | None = None
    output_token_sampling_mask: msgspec.Raw = _ABSENT
    output_token_sampling_logprobs: msgspec.Raw = _ABSENT


class _Body(msgspec.Struct, frozen=True):
    meta_info: _Meta


_DECODER = msgspec.json.Decoder(_Body)
_ENTRIES = msgspec.json.Decoder(list[_Entry] | None)
_SPANS = msgspec.json.Decoder(list[WeightSpan] | None)
_MASKS = msgspec.json.Decoder(list[list[_Int]] | None)
_LOGPROBS = msgspec.json.Decoder(list[float | None] | None)


def decode_response(body: bytes, request: GenerateRequest, *, vocab_size: int) -> Generation:
    """Decode the body of a 200; raises an EngineError if it can't be trained on."""
    if body.startswith((b"data:", b'{"error"')):
        raise _error_in_body(body)
    meta = _decoded(_DECODER, body).meta_info
    finish = _finish_reason(meta.finish_reason)
    ids, logprobs = _sampled(meta, request.max_new_tokens)
    _check_finish(meta.finish_reason, len(ids))
    prompt = len(request.input_ids)
    # A retracted call reads its sampled tokens again, each time.
    if not 0 <= meta.cached_tokens <= (prompt + len(ids)) * (1 + meta.num_retractions):
        raise InvalidAnswerError(f"{meta.cached_tokens} of {prompt} prompt tokens were cached")
    return Generation(
        token_ids=ids,
        logprobs=logprobs,
        finish_reason=finish,
        prompt_tokens=prompt if meta.prompt_tokens is None else meta.prompt_tokens,
        cached_tokens=meta.cached_tokens,
        weight_versions=_weight_versions(meta, len(ids)),
        replay=_replay(meta, request, ids, vocab_size=vocab_size),
    )


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes | msgspec.Raw) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "the engine's response is not a /generate response"
        raise InvalidAnswerError(what, why=str(error)) from error


def _items(
    decoder: msgspec.json.Decoder[list[_T] | None], raw: msgspec.Raw, *, field: str, most: int
) -> list[_T] | None:
    """Decode a list with at most so many lists or objects."""
    data = bytes(raw)
    if max(data.count(b"[") - 1, data.count(b"{")) > most:
        raise InvalidAnswerError(f"meta_info.{field} has more than {most} items")
    return _decoded(decoder, data)


def _error_in_body(body: bytes) -> EngineError:
    """Return the error inside a 200, as streams, and proxies that convert to streams, send it."""
    text = body.strip().removeprefix(b"data:").split(b"\n", 1)[0]
    code = ErrorBody.parse(text).status
    if code is None:
        return InvalidAnswerError("the engine responded with a stream that was not requested")
    return protocol.error_from_response(code, text)


def _finish_reason(finish: _Finish) -> FinishReason:
    try:
        reason = FinishReason(finish.type)
    except ValueError as error:
        raise InvalidAnswerError(f"unknown finish reason {finish.type[:80]!r}") from error
    match reason:
        case FinishReason.STOP | FinishReason.LENGTH:
            return reason
        case FinishReason.ABORT:
            # With a status, the engine rejected the call or failed; without, the call was aborted.
            if finish.status_code is not None:
                raise protocol.error_from_response(finish.status_code, finish.message.encode())
            return reason
        case _:
            assert_never(reason)


def _sampled(meta: _Meta, max_new_tokens: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    raw = meta.output_token_logprobs
    entries = _items(_ENTRIES, raw, field="output_token_logprobs", most=max_new_tokens)
    if entries is None:
        raise InvalidAnswerError(
            "the engine's response has no output_token_logprobs",
            why="ids are read from there alone; text is never tokenised again",
        )
    if len(entries) != meta.completion_tokens:
        raise InvalidAnswerError(
            f"{len(entries)} logprobs for {meta.completion_tokens} completion tokens"
        )
    return tuple([entry.id for entry in entries]), _numbers([entry.logprob for entry in entries])


def _numbers(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple([math.nan if value is None else value for value in values])


def _logprobs(values: Sequence[float | None], *, of: str) -> tuple[float, ...]:
    found = _numbers(values)
    check_logprobs(found, of=of)
    return found


def _check_finish(finish: _Finish, sampled: int) -> None:
    """Check what only SGLang says about the end of a call."""
    match finish:
        case _Finish(type="stop", matched=str(text)):
            # No text was requested. Engines with NaN logits report them here.
            raise InvalidAnswerError(f"the engine stopped at a text: {text[:80]!r}")
        case _Finish(type="length", length=int(length)) if length != sampled:
            what = f"finish_reason.length is {length} for {sampled} sampled ids"
            raise InvalidAnswerError(what)
        case _:
            return


def _weight_versions(meta: _Meta, count: int) -> tuple[WeightSpan, ...]:
    # An aborted call may have an empty list.
    reported = _items(_SPANS, meta.weight_versions, field="weight_versions", most=count + 1)
    if reported is not None:
        return tuple(reported)
    return () if meta.weight_version is None else (WeightSpan(meta.weight_version, 0, count),)


def _replay(
    meta: _Meta, request: GenerateRequest, ids: tuple[int, ...], *, vocab_size: int
) -> ReplayRows | None:
    wanted = request.replay
    if wanted is None:
        return None
    if not ids and meta.finish_reason.type == FinishReason.ABORT and meta.prompt_tokens is None:
        # The call was aborted in the queue, before its prompt was processed.
        return None
    experts: NDArray[np.int32] | None = None
    mask = _Mask((), ())
    prompt_logprobs: tuple[float, ...] = ()
    if wanted.experts is not None:
        rows = len(request.input_ids) + len(ids) - 1
        experts = decode_experts(
            meta.routed_experts, wanted.experts, rows=rows, start=wanted.experts_from
        )
    if wanted.sampling_mask:
        mask = _sampling_mask(meta, ids, vocab_size, request.sampling.top_k)
    if wanted.prompt_logprobs_from is not None:
        sent = request.input_ids.ids[wanted.prompt_logprobs_from - 1 :]
        prompt_logprobs = _prompt_logprobs(meta, sent)
    return ReplayRows(experts, mask.ids, mask.logprobs, prompt_logprobs)


class _Mask(NamedTuple):
    """The candidate ids of each sampled id, and its logprob among them."""

    ids: tuple[tuple[int, ...], ...]
    logprobs: tuple[float, ...]


def _sampling_mask(meta: _Meta, ids: tuple[int, ...], vocab_size: int, top_k: int) -> _Mask:
    raw = meta.output_token_sampling_mask
    masks = _items(_MASKS, raw, field="output_token_sampling_mask", most=len(ids))
    logprobs = _decoded(_LOGPROBS, meta.output_token_sampling_logprobs)
    if masks is None or logprobs is None:
        if not ids:
            return _Mask((), ())
        raise InvalidAnswerError(
            "the engine returned no sampling mask", fix=f"use SGLang 0.5.23 or later; {_DIRECT}"
        )
    if not len(masks) == len(logprobs) == len(ids):
        raise InvalidAnswerError(f"{len(masks)} sampling masks for {len(ids)} sampled ids")
    _check_masks(masks, ids, vocab_size, top_k)
    return _Mask(tuple(map(tuple, masks)), _logprobs(logprobs, of="a sampled id in its mask"))


def _check_masks(
    masks: Sequence[Sequence[int]], ids: tuple[int, ...], vocab_size: int, top_k: int
) -> None:
    if not all(token_id in mask for token_id, mask in zip(ids, masks, strict=True)):
        raise InvalidAnswerError("a sampled id is not in its sampling mask")
    if top_k > 0 and (longest := max(map(len, masks), default=0)) > top_k:
        raise InvalidAnswerError(f"a sampling mask has {longest} ids, topK is {top_k}")
    if any(min(mask) < 0 or max(mask) >= vocab_size for mask in masks):
        raise InvalidAnswerError("a sampling mask has an id outside the vocabulary")


def _prompt_logprobs(meta: _Meta, sent: NDArray[np.int32]) -> tuple[float, ...]:
    """Decode the logprobs of `sent` without its first id, for which the engine has none."""
    raw = meta.input_token_logprobs
    entries = _items(_ENTRIES, raw, field="input_token_logprobs", most=len(sent))
    if not entries:
        raise InvalidAnswerError(
            "the engine returned no logprobs of the prompt", fix=f"use a newer SGLang; {_DIRECT}"
        )
    if [entry.id for entry in entries] != sent.tolist():
        raise InvalidAnswerError("the engine returned prompt logprobs of ids that were not sent")
    return _logprobs([entry.logprob for entry in entries[1:]], of="a prompt id")


def decode_experts(
    encoded: str | None, shape: ExpertShape, *, rows: int, start: int
) -> NDArray[np.int32]:
    """Decode rows `[start, rows)`, sent as int32 in C order."""
    if encoded is None:
        raise InvalidAnswerError(
            "the engine returned no routed experts",
            fix=f"start it with --enable-return-routed-experts; {_DIRECT}",
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
