"""verl's side of the tests: its configuration, its batches, and servers that play texts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from hydra import compose, initialize_config_module
from verl.protocol import DataProto
from verl.workers.rollout.replica import TokenOutput

from swe_rollout.engine.transformers.scheduler import log_softmax
from unit.integrations.rollouts import (
    BROKEN,
    PARALLEL,
    RENDERER,
    SUBMIT,
    ask,
    bash,
    encode,
    hashed_model,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAIN = [PARALLEL, BROKEN, ask("Look."), "On and on. " * 30, SUBMIT]
SUB = [bash("ls"), "Found."]
OPENING = encode("<|im_start|>assistant\n")
PROMPT, RESPONSE = 2048, 2048


class Decoder(Protocol):
    """A model that an engine samples from."""

    def decoded(self, ids: Sequence[int], /, start: int = 0) -> NDArray[np.float32]:
        """Return the logits of what follows each id from `start` on."""
        ...


class Hashed:
    """A model without parameters, made where it is used: it travels to other processes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def decoded(self, ids: Sequence[int], /, start: int = 0) -> NDArray[np.float32]:
        return hashed_model(self.seed)(ids, start)

    def __call__(self, ids: Sequence[int], /) -> NDArray[np.float32]:
        return hashed_model(self.seed)(ids)


class Servers:
    """verl's server manager: plays texts with the logprobs of a model, under steps that change."""

    def __init__(self, models: Mapping[str, Decoder], *, abort_every: int | None = None) -> None:
        self.models = models
        self.abort_every = abort_every
        self.calls: list[dict[str, Any]] = []
        self.sampled_by: dict[int, str] = {}
        self.experts = False
        self.main: Sequence[str] = MAIN

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        self.calls.append({"request_id": request_id, "ids": prompt_ids, **sampling_params})
        await asyncio.sleep(0)
        if self.abort_every and len(self.calls) % 5 == 0:
            # As at the update of weights: nothing was sampled yet.
            return TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted")
        starts = [
            at for at in range(len(prompt_ids)) if prompt_ids[at : at + len(OPENING)] == OPENING
        ]
        is_sub = RENDERER.decode(prompt_ids[: starts[0]]).rstrip().endswith("Look.<|im_end|>")
        texts = SUB if is_sub else self.main
        script = encode(texts[min(len(starts), len(texts)) - 1] + "<|im_end|>")
        left = script[len(prompt_ids) - starts[-1] - len(OPENING) :]
        bound = min(sampling_params["max_tokens"], self.abort_every or 10**6)
        ids = left[:bound]
        names = list(self.models)
        # Of each episode, whatever the others do meanwhile.
        calls = sum(call["request_id"] == request_id for call in self.calls)
        version = names[calls % len(names)]
        whole = [*prompt_ids, *ids]
        for end in range(len(prompt_ids), len(whole)):
            self.sampled_by[hash(tuple(whole[: end + 1]))] = version
        rows = self.models[version].decoded(whole[:-1], len(prompt_ids) - 1)
        aborted = len(ids) < min(len(left), sampling_params["max_tokens"])
        shape = (len(whole) - 1, 2, 1)
        return TokenOutput(
            token_ids=ids,
            log_probs=[
                float(log_softmax(row, sampling_params["temperature"])[each])
                for row, each in zip(rows, ids, strict=True)
            ],
            routed_experts=np.full(shape, len(self.calls)) if self.experts else None,
            stop_reason="aborted" if aborted else "completed",
            num_preempted=1,
            extra_fields={"global_steps": int(version), "num_cached_tokens": 5},
        )


def configuration(model_path: Path, *overrides: str) -> Any:
    """Return verl's own configuration, as its `main_ppo` composes it."""
    yaml = files("swe_rollout.integrations") / "verl_agent.yaml"
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={model_path}",
                f"actor_rollout_ref.rollout.prompt_length={PROMPT}",
                f"actor_rollout_ref.rollout.response_length={RESPONSE}",
                "actor_rollout_ref.rollout.name=sglang",
                "actor_rollout_ref.rollout.temperature=0.8",
                "actor_rollout_ref.rollout.calculate_log_probs=True",
                "actor_rollout_ref.rollout.agent.default_agent_loop=swe_rollout",
                f"actor_rollout_ref.rollout.agent.agent_loop_config_path={yaml}",
                *overrides,
            ],
        )


def batch_of(*tasks: str) -> Any:
    rows: dict[str, list[Any]] = {
        "raw_prompt": [[{"role": "user", "content": task}] for task in tasks],
        "extra_info": [{"instance_id": task} for task in tasks],
        "index": list(range(len(tasks))),
    }
    return DataProto.from_dict(
        non_tensors={name: _objects(column) for name, column in rows.items()}
    )


def _objects(values: list[Any]) -> Any:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
