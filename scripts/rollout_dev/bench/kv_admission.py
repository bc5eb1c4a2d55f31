"""Episodes an hour on a real SGLang whose KV cache holds a quarter of them, with admission or not.

    scripts/sglang-cpu setup
    scripts/bench kv_admission [--json]

32 episodes of 8 turns call one server on the CPU, whose cache holds 8 whole contexts. Between two
turns, an episode's tools take a while: 86.5 % of turns follow within a second, as in recordings
of coding agents (vllm-project/router#285). The same episodes are played with `cacheTokens: 0`,
where all call whenever they like. What the server had computed before and computes again is read
from argparse import Namespace
from the `cached_tokens` of its answers.

The model has random weights and such a shape that a context takes about as long to compute as a
turn to sample. By a rough estimate, a 7B model on a GPU computes a context of 18,000 tokens in two
or three times the time of a turn; no GPU was measured.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_dev.report import Report, Row, program
from rollout_dev.sglang_cpu import __main__ as sglang_cpu
from rollout_dev.sglang_cpu import environment, server
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.engine.pool.pool import CacheShare, EnginePool
from swe_rollout.engine.sglang.connection import EngineConnection
from swe_rollout.spec.policy import Sampling, SglangPolicy
from swe_rollout.tokens.log import InputIds
from swe_rollout.types.episode import EpisodeId

GOAL: Final = 2.0
MOST_AGAIN: Final = 0.05
EPISODES: Final = 32
CONTEXT: Final = 4096
CACHE: Final = 8 * CONTEXT
_VOCAB: Final = 4000
"""Below the special tokens of the tiny model, which has 4,096: an id beyond kills the server."""
_SHARED, _OWN, _SAMPLED, _GROWTH = 600, 400, 30, 380
"""Tokens of the system message, of the issue, of a turn, and of a turn with its observation."""
_TOOLS_S: Final = 0.5
TURNS, QUICK_TURNS = 8, 4
_SHAPE: Final = {
    "hidden_size": 512,
    "intermediate_size": 8192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 64,
}
"""Wide layers, of which few are attention's: a step that samples copies the whole cache here."""


@dataclass(slots=True)
class _Totals:
    computed: int = 0
    again: int = 0
    seconds: float = 0.0

    @property
    def row(self) -> dict[str, float]:
        return {
            "episodes_per_hour": round(EPISODES * 3600 / self.seconds),
            "seconds_s": round(self.seconds, 1),
            "prefill_tokens": self.computed,
            "computed_again": self.again,
            "computed_again_share": round(self.again / self.computed, 3),
        }


@program(quick="4 turns in place of 8")
def main(given: Namespace) -> Report:
    """Start the server, and measure."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        flags = f"--max-total-tokens {CACHE} --max-running-requests {EPISODES}"
        command = [str(environment.VENV / "bin" / "python"), str(environment.HERE / "launch.py")]
        command += ["--model-path", str(environment.MODEL), *sglang_cpu.FLAGS.split()]
        command += ["--load-format", "dummy", "--json-model-override-args", json.dumps(_SHAPE)]
        served = server.Server([*command, *flags.split()])
        url = server.start(served, state=state, env=environment.variables())
        try:
            return asyncio.run(_measure(url, QUICK_TURNS if given.quick else TURNS))
        finally:
            server.stop(state)


async def _measure(url: str, turns: int) -> Report:
    control = EngineConnection(url)
    free = await _played(url, turns, cache_tokens=0)
    await control.post("/flush_cache")
    held = await _played(url, turns, cache_tokens=None)
    await control.aclose()
    ratio = free.seconds / held.seconds
    again = held.again / held.computed
    return Report(
        "kv_admission",
        (Row("swe-rollout", held.row), Row("without admission", free.row)),
        ok=ratio >= GOAL and again < MOST_AGAIN,
        ratios={"ours_to_without_admission": round(ratio, 2)},
        notes=(
            f"goals: {GOAL:g} times the episodes an hour; under {MOST_AGAIN:.0%} computed again",
            f"{EPISODES} episodes of {turns} turns, all at once; the cache holds {CACHE:,} tokens",
            "28 M parameters with random weights, on one core of a CPU",
            "its shape counts: with 16 M parameters 1.98 times, with 9 M in 4 layers 1.27 times",
        ),
    )


async def _played(url: str, turns: int, *, cache_tokens: int | None) -> _Totals:
    policy = SglangPolicy(workers=(url,), cache_tokens=cache_tokens)
    pool = EnginePool(policy, vocab_size=4096, share=CacheShare(context_tokens=CONTEXT))
    totals = _Totals()
    try:
        await pool.info()
        began = time.perf_counter()
        await asyncio.gather(*(_play(pool, each, turns, totals) for each in range(EPISODES)))
        totals.seconds = time.perf_counter() - began
    finally:
        await pool.aclose()
    return totals


async def _play(pool: EnginePool, number: int, turns: int, totals: _Totals) -> None:
    """Play an episode; its tokens and times are the same in each run."""
    rng, system = random.Random(number), random.Random(-1)  # noqa: S311 - the same in each run
    episode = EpisodeId("bench", f"task-{number}", 0)
    ids = [system.randrange(256, _VOCAB) for _ in range(_SHARED)]
    ids += [rng.randrange(256, _VOCAB) for _ in range(_OWN)]
    known = 0
    await pool.enter(episode)
    for turn in range(turns):
        request = GenerateRequest(
            episode, turn, InputIds.of(tuple(ids)), _SAMPLED, Sampling(seed=number), ()
        )
        answer = await pool.generate(request)
        totals.computed += len(ids) - answer.cached_tokens
        totals.again += max(0, known - answer.cached_tokens)
        sampled = [*answer.token_ids]
        # The last sampled token has not been an input yet.
        known = len(ids) + len(sampled) - 1
        ids += sampled + [rng.randrange(256, _VOCAB) for _ in range(_GROWTH - len(sampled))]
        await asyncio.sleep(rng.expovariate(1 / _TOOLS_S))
    pool.release(episode)
