"""SGLang's native `/generate` protocol: request bodies, server information, error statuses.

Pure functions over bytes: no connection here. `sglang.engine` speaks it as a client,
`scripted.server` as a server. Successful responses are decoded in `sglang.responses`.
"""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import quote, unquote

import msgspec

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import (
    CLIENT_ERRORS,
    MAX_BODY_BYTES,
    BadRequestError,
    CallLoss,
    ContextOverflowError,
    EngineLostError,
    ErrorBody,
    UnauthorizedError,
    UnavailableError,
    parse_retry_after,
    quoted,
)
from swe_rollout.errors import EngineError, InternalError
from swe_rollout.tokens.replay import ReplayRequest
from swe_rollout.types.episode import EpisodeId

_TOO_MANY: Final = 429
ROUTING_HEADER = "X-SMG-Routing-Key"
_TOKEN_BYTES: Final = 1024
"""Bytes allowed for one token's id, logprob and text. Most need fifty; some texts are long."""
_PROMPT_TOKEN_BYTES: Final = 128
_ID_BYTES: Final = 16
_EXPERT_BYTES: Final = 6
"""An int32 in base64, rounded up."""


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
    """A `/generate` request; unset fields are not sent."""

    rid: str
    input_ids: msgspec.Raw
    sampling_params: SamplingParams
    return_logprob: bool = True
    stream: bool = False
    logprob_start_len: int | msgspec.UnsetType = msgspec.UNSET
    """Sent only on request, because 0 would defeat the prefix cache."""
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
    """Exclusive bound on the input's length: the context or the cache, less a few tokens."""
    context_length: _Tokens | None = None
    """The context from the server's command line, if set; the model's is in `/v1/models`."""
    max_total_num_tokens: _Tokens | None = None
    """The size of the KV cache of each data-parallel rank."""
    dp_size: Annotated[int, msgspec.Meta(ge=1, le=65_536)] = 1
    disable_radix_cache: bool = False
    enable_hierarchical_cache: bool = False

    @property
    def cache_tokens(self) -> int | None:
        """The tokens of contexts that it keeps between calls.

        None if that is not limited to what it reports: no context is kept, or evicted ones come
        back from the host's memory.
        """
        if self.disable_radix_cache or self.enable_hierarchical_cache:
            return None
        return self.max_total_num_tokens and self.max_total_num_tokens * self.dp_size


class ModelCard(msgspec.Struct, frozen=True):
    """An entry of `/v1/models`."""

    id: str
    max_model_len: _Tokens | None = None


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelCard]


def routing_key(episode: EpisodeId) -> str:
    """Format the episode as a header value, with everything but plain ASCII percent-encoded."""
    return quote(str(episode), safe="/:@+,=")


def parse_routing_key(value: str) -> EpisodeId:
    """Parse what `routing_key` formats; raises ValueError for anything else."""
    return EpisodeId.parse(unquote(value))


def encode_request(request: GenerateRequest, *, rid: str, max_new_tokens: int) -> bytes:
    """Encode the body of a call."""
    body = GenerateBody(rid, msgspec.Raw(b"[]"), _params(request, max_new_tokens))
    if request.replay is not None:
        body = _with_replay(body, request.replay)
    # The ids are inserted as text: no list is built and one copy is made, however long the prompt.
    head, _, tail = msgspec.json.encode(body).partition(b"[]")
    return b"".join((head, b"[", request.input_ids.text.data, b"]", tail))


def _params(request: GenerateRequest, max_new_tokens: int) -> SamplingParams:
    sampling, seed = request.sampling, request.sampling.seed
    return SamplingParams(
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


def max_response_bytes(request: GenerateRequest) -> int:
    """Return a generous bound on the response to a request, with everything it asks for."""
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
    if (start := replay.prompt_logprobs_from) is not None:
        if start <= 1:
            why = "the engine would process the whole prompt again, cached or not"
            raise InternalError(f"logprobs are requested from input position {start} on", why=why)
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


_OVERFLOW = re.compile(
    r"longer than the model's context|exceeds the model's maximum context"
    r"|exceeds the maximum allowed length"
)


def error_from_response(
    status: int, body: bytes, *, retry_after: str | None = None, stranger: str | None = None
) -> EngineError:
    """Return the typed error of a response with a status other than 200.

    `stranger` is the content type of a response that may not be an engine's: its body is not
    quoted, because whoever wrote the address might not be allowed to read it.
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
        case 429 | 503 if status == _TOO_MANY or not found.is_from_router:
            after_s = parse_retry_after(retry_after)
            return UnavailableError(
                "the engine accepts no more work", why=why, retry_after_s=after_s
            )
        case _ if status in CLIENT_ERRORS:
            return BadRequestError("the engine rejected the request", why=why)
        case _:
            return _lost_error(why, is_from_router=found.is_from_router)


def _lost_error(why: str, *, is_from_router: bool) -> EngineLostError:
    if not is_from_router:
        return EngineLostError("the engine failed", why=why)
    fix = "look at the router's log, and at the engines behind it"
    what = "the router has no engine for the call"
    return EngineLostError(what, why=why, fix=fix, loss=CallLoss.UPSTREAM)
