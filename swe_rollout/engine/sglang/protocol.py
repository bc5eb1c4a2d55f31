"""SGLang's native `/generate` protocol: request bodies, server information, error responses.

Pure functions over bytes: no connection here. `sglang.engine` speaks it as a client,
`scripted.server` as a server. Successful responses are decoded in `sglang.responses`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final
from urllib.parse import quote, unquote

import msgspec

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.errors import EngineError, InternalError
from swe_rollout.text.redaction import redact
from swe_rollout.tokens.replay import ReplayRequest
from swe_rollout.types.episode import EpisodeId

ROUTING_HEADER = "X-SMG-Routing-Key"
MAX_BODY_BYTES: Final = 2**20
"""Of every response that is not a generation."""
_QUOTED_CHARACTERS: Final = 500
_ERROR_BYTES: Final = 65_536
"""Of an error body that is read as JSON; a longer one is text."""
_TOKEN_BYTES: Final = 1024
"""For the id, logprob and text of one token, which take fifty; some tokens are long."""
_PROMPT_TOKEN_BYTES: Final = 128
_ID_BYTES: Final = 16
_EXPERT_BYTES: Final = 6
"""An int32 in base64, rounded up."""


class ContextOverflowError(EngineError):
    """The request does not fit into the model's context."""

    def __init__(self, what: str, *, why: str = "") -> None:
        fix = "lower spec.limits.contextTokens to the engine's context length"
        super().__init__(what, why=why, fix=fix, retryable=False)


class BadRequestError(EngineError):
    """The engine rejects the request itself; sending it again can't help."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what, why=why, fix=fix, retryable=False)


class UnauthorizedError(EngineError):
    """The engine rejects the key."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        fix: str = "set spec.policy.sglang.apiKeyEnv to the variable that holds the engine's key",
    ) -> None:
        super().__init__(what, why=why, fix=fix, retryable=False)


class UnavailableError(EngineError):
    """The engine is up but accepts no more work now, such as when its queue is full."""

    def __init__(self, what: str, *, why: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(what, why=why, fix="lower spec.parallelism, or add engines")
        self.retry_after_s = retry_after_s


class CallLoss(StrEnum):
    """How a call was lost: whether it may still be running, and whether its engine is down."""

    UNREACHABLE = "unreachable"
    """No connection: nothing was sent."""
    UPSTREAM = "upstream"
    """A router lost its worker, or has none."""
    DROPPED = "dropped"
    """The connection ended during the call."""
    UNRESPONSIVE = "unresponsive"
    """The engine no longer responds to anything."""
    FAILED = "failed"
    """The engine reported an internal failure; it is up."""
    TIMED_OUT = "timed_out"
    """No response in the time of one generation; the engine is up."""


class EngineLostError(EngineError):
    """The engine did not respond, died during the call, or failed internally."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        fix: str = "look at the engine's log",
        loss: CallLoss = CallLoss.FAILED,
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.loss = loss


class OversizedResponseError(EngineLostError):
    """The engine sends more than the answer to what was asked can have, or hides how much."""


class InvalidAnswerError(EngineError):
    """The engine's response can't be trained on."""


class SamplingParams(msgspec.Struct, frozen=True, omit_defaults=False):
    """`sampling_params`, every value explicit: the engine's defaults never apply."""

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
    """One `/generate` request; unset fields are not sent."""

    rid: str
    input_ids: msgspec.Raw
    sampling_params: SamplingParams
    return_logprob: bool = True
    stream: bool = False
    logprob_start_len: int | msgspec.UnsetType = msgspec.UNSET
    """Unset unless requested: 0 would defeat the prefix cache."""
    return_routed_experts: bool | msgspec.UnsetType = msgspec.UNSET
    routed_experts_start_len: int | msgspec.UnsetType = msgspec.UNSET
    return_sampling_mask: bool | msgspec.UnsetType = msgspec.UNSET
    sampling_logprobs_mode: str | msgspec.UnsetType = msgspec.UNSET


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=2**31)]


class ModelInfo(msgspec.Struct, frozen=True):
    """The fields of `/model_info` that are used."""

    model_path: _Name
    served_model_name: _Name | None = None
    tokenizer_path: _Name | None = None
    weight_version: str | None = None


class ServerInfo(msgspec.Struct, frozen=True):
    """The fields of `/server_info` that are used."""

    max_req_input_len: _Tokens | None = None
    """Exclusive bound of the input ids: the context or the cache, less a few for the engine."""
    context_length: _Tokens | None = None
    """None unless set on the server's command line; the model's own is in `/v1/models`."""


class ModelCard(msgspec.Struct, frozen=True):
    """An entry of `/v1/models`."""

    id: str
    max_model_len: _Tokens | None = None


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelCard]


def routing_key(episode: EpisodeId) -> str:
    """Format the episode as a header value: anything but plain ASCII is percent-encoded."""
    return quote(str(episode), safe="/:@+,=")


def parse_routing_key(value: str) -> EpisodeId:
    """Parse what `routing_key` formats; raises ValueError for anything else."""
    return EpisodeId.parse(unquote(value))


def encode_request(request: GenerateRequest, *, rid: str, max_new_tokens: int) -> bytes:
    """Encode the body of one call."""
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
    # The ids are inserted as text: no list is built, however long the prompt.
    body = GenerateBody(rid, msgspec.Raw(b"[%b]" % request.input_ids.text), params)
    if request.replay is not None:
        body = _with_replay(body, request.replay)
    return msgspec.json.encode(body)


def max_response_bytes(request: GenerateRequest) -> int:
    """Return a generous bound for the response to a request, with everything it asks for."""
    tokens, prompt, replay = request.max_new_tokens, len(request.input_ids), request.replay
    size = MAX_BODY_BYTES + tokens * _TOKEN_BYTES
    if replay is None:
        return size
    if replay.experts is not None:
        row = replay.experts.layers * replay.experts.topk * _EXPERT_BYTES
        size += (prompt + tokens) * row
    if replay.sampling_mask:
        size += tokens * max(1, request.sampling.top_k) * _ID_BYTES
    if replay.prompt_logprobs_from is not None:
        size += prompt * _PROMPT_TOKEN_BYTES
    return size


def _with_replay(body: GenerateBody, replay: ReplayRequest) -> GenerateBody:
    start = replay.prompt_logprobs_from
    if start is not None and start <= 1:
        raise InternalError(
            f"logprobs are requested from input position {start} on",
            why="the engine would process the whole prompt again, cached or not",
        )
    if start is not None:
        # The first returned position has no logprob: start one position earlier.
        body = msgspec.structs.replace(body, logprob_start_len=start - 1)
    if replay.experts is not None:
        body = msgspec.structs.replace(
            body, return_routed_experts=True, routed_experts_start_len=replay.experts_from
        )
    if replay.sampling_mask:
        body = msgspec.structs.replace(
            body, return_sampling_mask=True, sampling_logprobs_mode="selected"
        )
    return body


class ErrorBody(msgspec.Struct, frozen=True):
    """The message and code of an error body, whichever of its shapes it has."""

    message: str
    code: int | None = None
    is_from_router: bool = False
    """A router's `code` is a word; a server's repeats the status."""

    @classmethod
    def parse(cls, body: bytes) -> ErrorBody:
        """Read one of five shapes: `error` as text or object, `message`, `detail`, not JSON."""
        match _decoded(body):
            case {"error": {"message": str(message), "code": int(code)}} if _is_status(code):
                return cls(message, code)
            case {"error": {"message": str(message), "code": str()}}:
                return cls(message, is_from_router=True)
            case {"error": {"message": str(message)}} | {"error": str(message)}:
                return cls(message)
            case {"object": "error", "message": str(message), "code": int(code)} if _is_status(
                code
            ):
                return cls(message, code)
            case {"message": str(message)} | {"detail": str(message)}:
                return cls(message)
            case _:
                return cls(body.decode(errors="replace"))


def _is_status(code: int) -> bool:
    return 400 <= code < 600  # noqa: PLR2004 - the HTTP statuses of errors


def _decoded(body: bytes) -> object:
    if len(body) > _ERROR_BYTES:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_OVERFLOW = re.compile(
    r"longer than the model's context|exceeds the model's maximum context"
    r"|exceeds the maximum allowed length"
)


def quoted(text: str) -> str:
    """Return the beginning of a server's text for an error, on one line."""
    # Secrets go before the text is cut: half of one might not be found.
    line = " ".join(text[: 4 * _QUOTED_CHARACTERS].split())
    return redact(line)[:_QUOTED_CHARACTERS]


def error_from_response(
    status: int, body: bytes, *, retry_after: str | None = None, stranger: str | None = None
) -> EngineError:
    """Return the typed error of a response whose status is not 200.

    `stranger` is the content type of a response from what may be no engine: its body is not quoted,
    because whoever wrote the address might not be allowed to read it.
    """
    found = ErrorBody.parse(body)
    why = f"HTTP {status}: {quoted(found.message if stranger is None else stranger)}"
    match status:
        case 400 | 413 | 422 if _OVERFLOW.search(why):
            return ContextOverflowError("the request exceeds the engine's context", why=why)
        case 401 | 403:
            return UnauthorizedError("the engine rejected the key", why=why)
        case 404 | 405:
            fix = "check spec.policy.sglang.url: it is the root of an SGLang server or router"
            return BadRequestError("the address is not an SGLang engine", why=why, fix=fix)
        case 429 | 503 if not (found.is_from_router and status == 503):  # noqa: PLR2004
            after_s = parse_retry_after(retry_after)
            return UnavailableError(
                "the engine accepts no more work", why=why, retry_after_s=after_s
            )
        case _ if 400 <= status < 500:  # noqa: PLR2004 - the class of HTTP statuses
            return BadRequestError("the engine rejected the request", why=why)
        case _:
            return _lost_error(why, is_from_router=found.is_from_router)


def _lost_error(why: str, *, is_from_router: bool) -> EngineLostError:
    if not is_from_router:
        return EngineLostError("the engine failed", why=why)
    fix = "look at the router's log, and at the engines behind it"
    what = "the router has no engine for the call"
    return EngineLostError(what, why=why, fix=fix, loss=CallLoss.UPSTREAM)


def parse_retry_after(value: str | None) -> float | None:
    """Read a Retry-After header in seconds; None for a date or nonsense, which no engine sends."""
    return float(value) if value is not None and re.fullmatch(r"\d{1,6}", value.strip()) else None
