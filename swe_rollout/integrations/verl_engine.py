"""VerlEngine: sample through verl's server manager, as its agent loops do.

The server manager is `LLMServerClient` of verl 0.9.1 or a subclass; nothing of verl is imported
here. One `request_id` per episode keeps it on one replica with its prefix cache. After an aborted
response the same turn continues, as with every engine.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

import numpy as np

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.errors import stopped_clock
from swe_rollout.errors import EngineError
from swe_rollout.integrations.adapter import TrainerEngine, generation_of
from swe_rollout.text.user_code import said
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation

if TYPE_CHECKING:
    from numpy.typing import NDArray

PATIENCE_S: Final = 1800.0
"""How long a call waits for servers that abort every call, as they do while loading weights."""
_PAUSE_S: Final = 1.0
_FINISHED: Final = {"abort": "abort", "aborted": "abort", "stop": "stop"}
"""How a response ended; verl says `completed` for a stop and for a limit alike."""


TokenOutput: TypeAlias = Any
"""What verl's server manager returns; verl has no types. `routed_experts` is an array
`[rows, layers, topk]` of the whole request."""


@dataclass(slots=True)
class Seen:
    """What verl's servers report about one attempt at an episode besides its tokens."""

    prompts: dict[int, int] = field(default_factory=dict)
    """The length of each branch's first prompt."""
    experts: dict[int, NDArray[np.int32]] = field(default_factory=dict)
    """The experts of each branch's tokens as they were first read, `[rows, layers, topk]`."""
    preempted: int | None = None
    first_step: int | None = None
    """The lowest and highest weight versions that sampled a token."""
    last_step: int | None = None

    def add(self, output: TokenOutput) -> str | None:
        """Add a response; return the weight version of its tokens."""
        if output.num_preempted is not None:
            self.preempted = (self.preempted or 0) + output.num_preempted
        steps = output.extra_fields
        last = steps.get("max_global_steps", steps.get("global_steps"))
        first = steps.get("min_global_steps", last)
        if last is None or first is None or not output.token_ids:
            return None
        self.first_step = first if self.first_step is None else min(self.first_step, first)
        self.last_step = last if self.last_step is None else max(self.last_step, last)
        # A client that itself continues after weight updates does not say where they were.
        return str(last) if first == last else f"{first}..{last}"


@dataclass(slots=True)
class VerlLane:
    """An episode on verl's servers."""

    request_id: str = field(default_factory=lambda: uuid4().hex)
    seen: Seen = field(default_factory=Seen)
    is_over: bool = False
    """Whether the attempt ended, so that the next call begins another one."""


class VerlEngine(TrainerEngine):
    """Samples through a server manager, within the lengths that verl pads to."""

    def __init__(
        self,
        server_manager: Any,
        *,
        prompt_tokens: int,
        response_tokens: int,
        tokenizer: str,
        context_tokens: int | None = None,
    ) -> None:
        """`server_manager` is `LLMServerClient` or a subclass.

        `context_tokens` lowers the sum of the two lengths, if the servers hold less.
        """
        whole = prompt_tokens + response_tokens
        super().__init__(tokenizer, context_tokens=min(whole, context_tokens or whole))
        self._server_manager = server_manager
        self._prompt_tokens = prompt_tokens
        self._response_tokens = response_tokens
        self._lanes: dict[EpisodeId, VerlLane] = {}
        self._no_experts: NDArray[np.int32] | None = None
        """No rows, in the shape of the model; None as long as the servers return no experts."""

    def begin(self, episode: EpisodeId) -> VerlLane:
        """Follow an episode until `end`."""
        return self._lanes.setdefault(episode, VerlLane())

    def end(self, episode: EpisodeId) -> None:
        """Stop following an episode.

        If it sampled nothing, it has experts of no token: verl wants those of a whole batch.
        """
        lane = self._lanes.pop(episode, None)
        if lane is not None and self._no_experts is not None:
            lane.seen.experts.setdefault(0, self._no_experts)

    async def generate(self, request: GenerateRequest) -> Generation:
        lane = self.begin(request.episode)
        if lane.is_over:
            lane.seen, lane.is_over = Seen(), False
        length = len(request.input_ids)
        prompt = lane.seen.prompts.setdefault(request.branch, length)
        if prompt > self._prompt_tokens:
            raise EngineError(
                f"a prompt of {prompt} tokens does not fit verl's {self._prompt_tokens}",
                why="verl would cut its beginning off, which the policy has read",
                fix="raise data.max_prompt_length (actor_rollout_ref.rollout.prompt_length)",
                retryable=False,
            )
        room = min(request.max_new_tokens, prompt + self._response_tokens - length)
        if room < 1:
            return Generation((), (), FinishReason.LENGTH, prompt_tokens=length)
        output = await self._sampled(lane.request_id, request, room)
        version = lane.seen.add(output)
        if output.routed_experts is not None:
            _keep_experts(lane.seen, request, output)
            self._no_experts = lane.seen.experts[request.branch][:0].copy()
        return generation_of(
            request,
            output.token_ids,
            output.log_probs,
            _FINISHED.get(output.stop_reason, "length"),
            () if version is None else [version] * len(output.token_ids),
            cached_tokens=output.extra_fields.get("num_cached_tokens") or 0,
        )

    def release(self, episode: EpisodeId) -> None:
        if (lane := self._lanes.get(episode)) is not None:
            lane.is_over = True

    async def _sampled(self, request_id: str, request: GenerateRequest, room: int) -> TokenOutput:
        """Return the first response that has tokens or has ended."""
        waits = math.ceil(PATIENCE_S / _PAUSE_S)
        for _ in range(waits):
            output = await self._call(request_id, request, room)
            if output.token_ids or output.stop_reason not in ("aborted", "abort"):
                return output
            with stopped_clock(request.clock):
                await asyncio.sleep(_PAUSE_S)
        raise EngineError(
            f"verl's servers aborted every call for {PATIENCE_S:g} s",
            fix="look into their logs: they load no weights for so long",
        )

    async def _call(self, request_id: str, request: GenerateRequest, room: int) -> TokenOutput:
        sampling = request.sampling
        parameters: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "max_tokens": room,
            "stop_token_ids": list(request.stop_token_ids),
        }
        if sampling.min_p:
            parameters["min_p"] = sampling.min_p
        try:
            return await self._server_manager.generate(
                request_id, prompt_ids=request.input_ids.tolist(), sampling_params=parameters
            )
        except Exception as error:  # an actor may have died, whoever's code said so
            raise EngineError("verl's server manager failed", why=said(error)) from error


def _keep_experts(seen: Seen, request: GenerateRequest, output: TokenOutput) -> None:
    """Append only the new rows: the known ones were chosen by the weights that sampled."""
    rows = np.asarray(output.routed_experts, dtype=np.int32)
    known = seen.experts.get(request.branch, rows[:0])
    total = len(request.input_ids) + len(output.token_ids) - 1
    if len(rows) < total:
        raise EngineError(
            "verl's servers returned the experts of other tokens",
            why=f"{len(rows)} rows for a request of {total + 1} tokens",
        )
    seen.experts[request.branch] = np.concatenate([known, rows[len(known) : total]])
