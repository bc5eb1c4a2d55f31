"""A server whose KV cache evicts contexts, in simulated time, and episodes that call it."""

from __future__ import annotations

import asyncio
import selectors
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.pool.admission import Admission
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.turn import FinishReason, Generation
from unit.engine.engine_parts import request

_T = TypeVar("_T")
PREFILL_PER_S: Final = 10_000
SAMPLED_PER_S: Final = 100


class _Skipping(selectors.SelectSelector):
    """Skips waiting times."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits, and nothing can happen any more"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.skipping = _Skipping()
        super().__init__(self.skipping)

    def time(self) -> float:
        return self.skipping.now_s


def simulate(work: Callable[[], Coroutine[Any, Any, _T]]) -> tuple[_T, float]:
    """Run a coroutine in simulated time; return its result and the seconds that passed.

    Fails where tasks wait for each other for ever.
    """
    loop = _Loop()
    try:
        return loop.run_until_complete(work()), loop.time()
    finally:
        loop.close()


@dataclass(frozen=True)
class Plan:
    """What an episode does: a first prompt, and turns that sample and observe so many tokens."""

    prompt: int = 1000
    turns: Sequence[tuple[int, int, float]] = ((30, 100, 0.5),) * 20
    """Sampled tokens, observed tokens, and the seconds that the tools take."""


@dataclass
class Server:
    """Keeps the contexts of running calls; of others, the least recently used shrink first."""

    cache_tokens: int
    computed: int = 0
    """Tokens of prompts that were computed."""
    again: int = 0
    """Those that had been computed before."""
    kept: OrderedDict[EpisodeId, int] = field(default_factory=OrderedDict)
    known: dict[EpisodeId, int] = field(default_factory=dict)
    running: set[EpisodeId] = field(default_factory=set)
    prefill: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def generate(self, call: GenerateRequest, sampled: int) -> Generation:
        """Compute what the cache has not, and sample."""
        prompt = len(call.input_ids)
        async with self.prefill:
            cached = self.kept.get(call.episode, 0)
            self.running.add(call.episode)
            self._keep(call.episode, prompt + sampled)
            self.computed += prompt - cached
            self.again += max(0, self.known.get(call.episode, 0) - cached)
            self.known[call.episode] = prompt + sampled
            await asyncio.sleep((prompt - cached) / PREFILL_PER_S)
        await asyncio.sleep(sampled / SAMPLED_PER_S)
        self.running.remove(call.episode)
        self._keep(call.episode, prompt + sampled)
        ids = (1,) * sampled
        return Generation(ids, (-0.5,) * sampled, FinishReason.STOP, prompt, cached)

    def _keep(self, episode: EpisodeId, tokens: int) -> None:
        self.kept[episode] = tokens
        self.kept.move_to_end(episode)
        too_many = sum(self.kept.values()) - self.cache_tokens
        for other, size in [*self.kept.items()]:
            if too_many > 0 and other not in self.running and other != episode:
                self.kept[other] = max(0, size - too_many)
                too_many -= size - self.kept[other]
                if not self.kept[other]:
                    del self.kept[other]

    async def play(self, admission: Admission, sample: int, plan: Plan) -> None:
        """Play an episode as a worker does."""
        call = request(sample=sample)
        size = plan.prompt
        await admission.enter(call.episode)
        for sampled, observed, tools_s in plan.turns:
            turn = request(sample=sample, input_ids=InputIds.of((1,) * size))
            context = admission.begin(turn)
            try:
                await context.ready.wait()
                admission.learn(context, await self.generate(turn, sampled))
            finally:
                admission.end(context)
            size += sampled + observed
            await asyncio.sleep(tools_s)
        admission.release(call.episode)
