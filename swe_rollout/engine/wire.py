"""The wire of SGLang's native `/generate`: what is sent, what comes back, how it refuses.

Pure functions over bytes: no connection here. `engine.sglang` speaks it as a client,
`engine.scripted_server` as a server. Answers are untrusted: an answer that can't be trained on is
an error, never repaired.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, assert_never
from urllib.parse import quote, unquote

import msgspec

from swe_rollout.errors import EngineError
from swe_rollout.trajectory import EpisodeId, FinishReason, Generation, WeightSpan

if TYPE_CHECKING:
    from swe_rollout.engine.base import GenerateRequest

ROUTING_HEADER = "X-SMG-Routing-Key"
_QUOTED_CHARACTERS = 500


class ContextOverflowError(EngineError):
    """The request does not fit into the model's context."""

    def __init__(self, what: str, *, why: str = "") -> None:
        fix = "lower spec.limits.contextTokens to the engine's context length"
        super().__init__(what, why=why, fix=fix, retryable=False)


class BadRequestError(EngineError):
    """The engine refuses the request as such; sending it again can't help."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix, retryable=False)


class UnauthorizedError(EngineError):
    """The engine wants another key."""

    def __init__(self, what: str, *, why: str = "") -> None:
        fix = "set spec.policy.sglang.apiKeyEnv to the variable that holds the engine's key"
        super().__init__(what, why=why, fix=fix, retryable=False)


class UnavailableError(EngineError):
    """The engine is there but takes no more work now: its queue is full, or it says so."""

    def __init__(self, what: str, *, why: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(what, why=why, fix="lower spec.parallelism, or add engines")
        self.retry_after_s = retry_after_s


class EngineLostError(EngineError):
    """The engine did not answer, died under the call, or failed inside."""

    def __init__(self, what: str, *, why: str = "", fix: str = "look at the engine's log") -> None:
        super().__init__(what, why=why, fix=fix)


class InvalidAnswerError(EngineError):
    """The engine answered something that can't be trained on."""


class SamplingParams(msgspec.Struct, frozen=True, omit_defaults=False):
    """`sampling_params`, every value said: the engine's defaults never apply."""

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    stop_token_ids: tuple[int, ...] | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    no_stop_trim: bool = False
    sampling_seed: int | msgspec.UnsetType | None = msgspec.UNSET


class GenerateBody(msgspec.Struct, frozen=True):
    """One `/generate` request. `logprob_start_len` is left out: 0 would defeat the prefix cache."""

    rid: str
    input_ids: msgspec.Raw
    sampling_params: SamplingParams
    return_logprob: bool = True
    stream: bool = False


class _Finish(msgspec.Struct, frozen=True):
    type: str
    matched: int | list[int] | str | None = None
    message: str = ""
    status_code: int | None = None


class _Span(msgspec.Struct, frozen=True):
    version: str
    start: int
    end: int


class _Meta(msgspec.Struct, frozen=True):
    finish_reason: _Finish
    completion_tokens: int
    output_token_logprobs: list[tuple[float | None, int, str | None]] | None = None
    prompt_tokens: int | None = None
    """Missing when the request was aborted in the queue."""
    cached_tokens: int = 0
    weight_version: str | None = None
    weight_versions: list[_Span] | None = None
    """Missing on older engines."""


class _Answer(msgspec.Struct, frozen=True):
    meta_info: _Meta


class ModelInfo(msgspec.Struct, frozen=True):
    """`/model_info`, as far as it matters here."""

    model_path: str
    served_model_name: str | None = None
    tokenizer_path: str | None = None
    weight_version: str | None = None


class ServerInfo(msgspec.Struct, frozen=True):
    """`/server_info`, as far as it matters here."""

    max_req_input_len: int | None = None
    """Input ids must be fewer: the context or the cache's size, less a few for the engine."""
    context_length: int | None = None
    """None unless the server was started with one; the model's own is in `/v1/models`."""


class ModelCard(msgspec.Struct, frozen=True):
    """One entry of `/v1/models`."""

    id: str
    max_model_len: int | None = None


class ModelList(msgspec.Struct, frozen=True):
    """`/v1/models`."""

    data: list[ModelCard]


def routing_key(episode: EpisodeId) -> str:
    """The episode's address as a header value: anything but plain ASCII is percent-encoded."""
    return quote(str(episode), safe="/:@+,=")


def parse_routing_key(value: str) -> EpisodeId:
    """The inverse of `routing_key`; raises ValueError for anything else."""
    return EpisodeId.parse(unquote(value))


def encode_request(request: GenerateRequest, *, rid: str, max_new_tokens: int) -> bytes:
    """The body of one call."""
    sampling, seed = request.sampling, request.sampling.seed
    params = SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        stop_token_ids=request.stop_token_ids,
        skip_special_tokens=False,
        spaces_between_special_tokens=False,
        no_stop_trim=True,
        sampling_seed=msgspec.UNSET if seed is None else seed,
    )
    return msgspec.json.encode(
        GenerateBody(rid, msgspec.Raw(b"[%b]" % request.input_ids.text), params)
    )


def decode_answer(body: bytes, *, prompt_tokens: int, vocab_size: int) -> Generation:
    """The generation in a 200 answer; raises an EngineError when it can't be trained on."""
    if body.lstrip().startswith((b"data:", b'{"error"')):
        raise _refusal_in_answer(body)
    meta = _meta(body)
    finish = _finish_reason(meta.finish_reason)
    ids, logprobs = _sampled(meta, vocab_size)
    _check_stop(meta.finish_reason, ids)
    if meta.prompt_tokens not in (prompt_tokens, None):
        raise InvalidAnswerError(
            f"the engine read {meta.prompt_tokens} tokens of a prompt of {prompt_tokens}",
            fix="start the engine without --allow-auto-truncate; don't send through a session",
        )
    return Generation(
        token_ids=ids,
        logprobs=logprobs,
        finish_reason=finish,
        prompt_tokens=prompt_tokens,
        cached_tokens=meta.cached_tokens,
        weight_versions=_weight_versions(meta, len(ids)),
    )


def _meta(body: bytes) -> _Meta:
    try:
        return msgspec.json.decode(body, type=_Answer).meta_info
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = "the engine's answer is no /generate answer"
        raise InvalidAnswerError(what, why=str(error)) from error


def _finish_reason(finish: _Finish) -> FinishReason:
    try:
        reason = FinishReason(finish.type)
    except ValueError as error:
        raise InvalidAnswerError(f"unknown finish reason {finish.type[:80]!r}") from error
    match reason:
        case FinishReason.STOP | FinishReason.LENGTH:
            return reason
        case FinishReason.ABORT:
            # With a status the engine refused or failed; without one somebody aborted the call.
            if finish.status_code is not None:
                raise refusal(finish.status_code, finish.message.encode())
            return reason
        case _:
            assert_never(reason)


def _sampled(meta: _Meta, vocab_size: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    entries = meta.output_token_logprobs
    if entries is None:
        raise InvalidAnswerError(
            "the engine's answer has no output_token_logprobs",
            why="ids are taken from there alone; text is never tokenised again",
        )
    if len(entries) != meta.completion_tokens:
        raise InvalidAnswerError(
            f"{len(entries)} logprobs for {meta.completion_tokens} completion tokens"
        )
    ids = tuple(entry[1] for entry in entries)
    logprobs = tuple(math.nan if entry[0] is None else entry[0] for entry in entries)
    if ids and not (min(ids) >= 0 and max(ids) < vocab_size):
        raise InvalidAnswerError(
            f"sampled ids reach from {min(ids)} to {max(ids)}, the vocabulary has {vocab_size}",
            fix="check that the tokenizer is the model's own",
        )
    if not all(map(math.isfinite, logprobs)):
        raise InvalidAnswerError("a sampled id has no finite logprob")
    return ids, logprobs


def _check_stop(finish: _Finish, ids: tuple[int, ...]) -> None:
    match finish.matched:
        case int(stop):
            stops: tuple[int, ...] = (stop,)
        case list(several):
            stops = tuple(several)
        case _:
            return
    if ids[-len(stops) :] != stops:
        raise InvalidAnswerError("the stop token is not among the sampled ids", why=f"{stops}")


def _weight_versions(meta: _Meta, count: int) -> tuple[WeightSpan, ...]:
    if meta.weight_versions is not None:
        spans = (WeightSpan(span.version, span.start, span.end) for span in meta.weight_versions)
        return tuple(span for span in spans if span.end > span.start)
    if meta.weight_version is None or count == 0:
        return ()
    return (WeightSpan(meta.weight_version, 0, count),)


def _refusal_in_answer(body: bytes) -> EngineError:
    """The refusal inside a 200: streams answer so, and proxies that turn a call into a stream."""
    text = body.strip().removeprefix(b"data:").split(b"\n", 1)[0]
    code = _Refusal.of(text).code
    if code is None:
        return InvalidAnswerError("the engine answered with a stream that was not asked for")
    return refusal(code, text)


class _Refusal(msgspec.Struct, frozen=True):
    """What an error body says, whichever of its shapes it has."""

    message: str
    code: int | None = None

    @classmethod
    def of(cls, body: bytes) -> _Refusal:
        """Five shapes: `error` as text or object, `message`, `detail`, and no JSON at all."""
        try:
            decoded: object = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return cls(body.decode(errors="replace"))
        match decoded:
            case {"error": {"message": str(message), "code": int(code)}}:
                return cls(message, code)
            case {"error": {"message": str(message)}} | {"error": str(message)}:
                return cls(message)
            case {"object": "error", "message": str(message), "code": int(code)}:
                return cls(message, code)
            case {"message": str(message)} | {"detail": str(message)}:
                return cls(message)
            case _:
                return cls(body.decode(errors="replace"))


_OVERFLOW = re.compile(
    r"longer than the model's context|exceeds the model's maximum context"
    r"|exceeds the maximum allowed length"
)


def refusal(status: int, body: bytes, *, retry_after: str | None = None) -> EngineError:
    """The typed error of a call that was not answered with 200."""
    why = f"HTTP {status}: {_Refusal.of(body).message.strip()[:_QUOTED_CHARACTERS]}"
    match status:
        case 400 | 413 | 422 if _OVERFLOW.search(why):
            return ContextOverflowError("the request exceeds the engine's context", why=why)
        case 401 | 403:
            return UnauthorizedError("the engine refused the key", why=why)
        case 404 | 405:
            fix = "check spec.policy.sglang.url: it is the root of an SGLang server or router"
            return BadRequestError("the address is not an SGLang engine", why=why, fix=fix)
        case 429 | 503:
            after_s = parse_retry_after(retry_after)
            return UnavailableError("the engine takes no more work", why=why, retry_after_s=after_s)
        case _ if 400 <= status < 500:  # noqa: PLR2004 - the class of HTTP statuses
            return BadRequestError("the engine refused the request", why=why)
        case _:
            return EngineLostError("the engine failed", why=why)


def parse_retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header; none for a date or nonsense, which no engine sends."""
    return float(value) if value is not None and re.fullmatch(r"\d{1,6}", value.strip()) else None
