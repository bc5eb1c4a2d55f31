"""The configuration of a model: sampling, recording and output constraints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple, TypedDict, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import UsageError
from swe_rollout.integrations.strands.exceptions import SGLangDecodingError
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.tokens.replay import ExpertShape, Recording

_TEXT_ONLY: Final = frozenset(
    {"skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim"}
)
"""These concern a response's text, which is not read; its ids are."""
_NAMES: Final = {"sampling_seed": "seed"} | {name: name for name in Sampling.model_fields}
_TOKENS: Final = TypeAdapter(tuple[int, ...])


_Output = TypeVar("_Output", bound=BaseModel)


class SglangConfig(TypedDict, total=False):
    """The configuration of a model."""

    sampling_params: Mapping[str, object] | None
    """The parameters of each turn: max_new_tokens, temperature, top_p, top_k, min_p, seed."""
    enable_thinking: bool | None
    """A variable of some chat templates; None leaves it unset."""
    context_window_limit: int | None
    """The limit on prompt and completion together; None for that of the engine."""
    return_logprob: bool | None
    """Accepted for compatibility: sampled tokens always have logprobs."""
    return_prompt_logprobs: bool | None
    """Whether text appended after the first turn gets logprobs too."""
    return_routed_experts: tuple[int, int] | None
    """Layers and experts per token of a mixture, to record its choices; None records nothing."""
    model_id: str | None
    """The model's name in Strands' traces."""


def check_config(config: SglangConfig, renderer: Renderer) -> None:
    """Raise UsageError for options that would not be honoured."""
    unknown = sorted(set(config) - set(SglangConfig.__annotations__))
    if unknown:
        known = ", ".join(SglangConfig.__annotations__)
        raise UsageError(f"a model has no option {unknown[0]!r}", fix=f"there are {known}")
    read_sampling(config.get("sampling_params") or {}, renderer)
    recording_of(config)


def recording_of(config: SglangConfig) -> Recording | None:
    """Return what to record beside tokens and logprobs; raises UsageError for a wrong shape."""
    shape = config.get("return_routed_experts")
    prompt = bool(config.get("return_prompt_logprobs"))
    match shape:
        case None | False:
            return Recording(prompt_logprobs=True) if prompt else None
        case (int(layers), int(topk)):
            return Recording(experts=ExpertShape(layers, topk), prompt_logprobs=prompt)
        case _:
            raise UsageError(
                "return_routed_experts needs the shape of the mixture",
                fix="set it to (layers, experts per token) of the checkpoint's config.json",
            )


class TurnSampling(NamedTuple):
    """The sampling parameters of a turn and its maximum length."""

    sampling: Sampling
    max_new_tokens: int


def read_sampling(params: Mapping[str, object], renderer: Renderer) -> TurnSampling:
    """Read sampling parameters; raises UsageError for one that would not be honoured.

    Defaults are 1.0 for temperature and top-p, 4,096 tokens, and off for the rest.
    """
    given = {name: value for name, value in params.items() if name not in _TEXT_ONLY}
    limit = given.pop("max_new_tokens", Limits().max_new_tokens)
    _check_stops(given.pop("stop", None), given.pop("stop_token_ids", None), renderer)
    for name in [each for each in given if each not in _NAMES]:
        raise UsageError(
            f"sampling_params.{name} is not supported",
            why="it would change what is sampled, and the record would not say so",
            fix=f"leave it out; there are max_new_tokens, {', '.join(_NAMES)}",
        )
    fields = {_NAMES[name]: value for name, value in given.items() if value is not None}
    try:
        if not isinstance(limit, int) or limit < 1:
            raise UsageError("sampling_params.max_new_tokens must be an integer above 0")
        return TurnSampling(Sampling.model_validate(fields), limit)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        raise UsageError(f"sampling_params.{name} is wrong", why=first["msg"]) from error


def _check_stops(stop: object, stop_ids: object, renderer: Renderer) -> None:
    """Raise UsageError for stops other than the ends of a turn, which are always set."""
    try:
        ids = () if stop_ids is None else _TOKENS.validate_python(stop_ids)
    except ValidationError as error:
        raise UsageError("sampling_params.stop_token_ids must be a list of ids") from error
    further = sorted(set(ids) - set(renderer.stop_token_ids))
    if stop or further:
        raise UsageError(
            f"a turn can't be made to stop at {stop or further}",
            why="what follows a turn depends on the token that ended it; the ends of this model "
            f"are {list(renderer.stop_token_ids)}",
            fix="leave `stop` and further `stop_token_ids` out of sampling_params",
        )


def constrained(given: TurnSampling, output_model: type[BaseModel]) -> dict[str, object]:
    """Return SGLang's sampling parameters for an object of a pydantic model."""
    sampling = given.sampling
    return {
        **sampling.model_dump(exclude={"seed"}),
        **({} if sampling.seed is None else {"sampling_seed": sampling.seed}),
        "max_new_tokens": given.max_new_tokens,
        "json_schema": json.dumps(output_model.model_json_schema()),
    }


def read_object(response: object, output_model: type[_Output]) -> _Output:
    """Return the object that a response of `/generate` holds; raises SGLangDecodingError."""
    match response:
        case {"text": str(text), "meta_info": {"finish_reason": {"type": "stop"}}}:
            return output_model.model_validate_json(text)
        case {"meta_info": {"finish_reason": {"type": str(reason)}}}:
            raise SGLangDecodingError(
                f"the structured output did not end by itself, but by {reason}: "
                "raise sampling_params.max_new_tokens"
            )
        case _:
            raise SGLangDecodingError("the response is not that of /generate")
