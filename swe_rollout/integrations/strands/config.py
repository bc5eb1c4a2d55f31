"""The configuration of a model, and what it asks to be recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import UsageError
from swe_rollout.integrations.strands.sampling import read_sampling
from swe_rollout.tokens.replay import ExpertShape, Recording


class SglangConfig(TypedDict, total=False):
    """The configuration of a model."""

    sampling_params: Mapping[str, object] | None
    """Of each turn: max_new_tokens, temperature, top_p, top_k, min_p, seed."""
    enable_thinking: bool | None
    """A variable of some chat templates; None: not set."""
    context_window_limit: int | None
    """Prompt and completion together; None: what the engine holds."""
    return_logprob: bool | None
    """What was sampled has logprobs in any case."""
    return_prompt_logprobs: bool | None
    """Whether what is appended after the first turn gets logprobs too."""
    return_routed_experts: tuple[int, int] | None
    """Layers and experts per token of a mixture, whose choices are recorded; None: they are not."""
    model_id: str | None
    """For Strands' traces."""


def check_config(config: SglangConfig, renderer: Renderer) -> None:
    """Raise UsageError for options that would not be honoured."""
    unknown = sorted(set(config) - set(SglangConfig.__annotations__))
    if unknown:
        known = ", ".join(SglangConfig.__annotations__)
        raise UsageError(f"a model has no option {unknown[0]!r}", fix=f"there are {known}")
    read_sampling(config.get("sampling_params") or {}, renderer)
    recording_of(config)


def recording_of(config: SglangConfig) -> Recording | None:
    """Return what is recorded beside tokens and logprobs; raises UsageError for a wrong shape."""
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
