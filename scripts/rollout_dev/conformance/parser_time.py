"""How long degenerate turns block the event loop, in every call format and several vocabularies.

Each turn is its own episode in the agent loop: the turn is sampled and parsed, its calls are run,
and the results become the next prompt. A heartbeat on the same event loop measures how long it was
blocked. Exits with 1 if any turn blocks it for longer than the limit.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import numpy as np

from rollout_dev import families
from rollout_dev.families import FAMILIES
from rollout_dev.fileless import PrintingSandbox
from rollout_dev.parser_probes.degenerate import turn_ids, units
from rollout_dev.report import Report, Row, option, program, table
from swe_rollout.agent.context import AgentContext
from swe_rollout.agent.off_loop import settled_heap
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parts import AgentParts
from swe_rollout.agent.program import loop
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.spec.limits import Limits
from swe_rollout.spec.policy import Sampling
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import FinishReason, Generation

LIMIT_MS: Final = 50.0
_BEAT_S: Final = 0.001
_TRIES: Final = 12
"""Maximum measurements of a turn that seems too slow, as other processes may be to blame."""


@dataclass
class _Repeater(TokenEngine):
    """Samples one given turn, and then one that ends the episode."""

    ids: Sequence[int]
    end: int

    async def info(self) -> EngineInfo:
        return EngineInfo("repeater", None, None, None)

    async def generate(self, request: GenerateRequest) -> Generation:
        await asyncio.sleep(0)
        ids = (*self.ids, self.end) if request.turn == 0 else (self.end,)
        return Generation(
            ids, (-0.5,) * len(ids), FinishReason.STOP, prompt_tokens=len(request.input_ids),
            cached_tokens=0,
        )  # fmt: skip


@dataclass
class Heartbeat:
    """The longest time for which the event loop ran nothing else."""

    held_s: float = 0.0
    _task: asyncio.Task[None] | None = field(default=None, repr=False)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(2 * _BEAT_S)
        self.held_s = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(2 * _BEAT_S)
        assert self._task is not None  # noqa: S101 - entered
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _beat(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_BEAT_S)
            self.held_s = max(self.held_s, time.perf_counter() - began - _BEAT_S)


async def held_ms(renderer: Renderer, ids: Sequence[int]) -> float:
    """Return the longest time in ms for which one turn blocked the event loop."""
    limits = Limits(context_tokens=1 << 20, max_new_tokens=len(ids) + 1, turns=2)
    engine = _Repeater(ids, renderer.grammar.end_id)
    tools = toolbox(["bash", "submit"])
    context = AgentContext(
        AgentParts(engine, renderer, tools, Prompts(), limits),
        instance=Instance(instance_id="i", problem_statement="It fails.", image="image"),
        episode=EpisodeId("job", "i", 0),
        sampling=Sampling(),
        sandbox=PrintingSandbox(b""),
        on_turn=lambda _turn: None,
    )
    async with Heartbeat() as heartbeat:
        await loop(context)
    return heartbeat.held_s * 1000


def renderers(form: ToolFormat, folder: Path) -> Iterator[tuple[str, Renderer]]:
    """Yield the vocabularies for a format: its families' own, and one without its tokens."""
    for name in (name for name, family in FAMILIES.items() if family.tool_format is form):
        yield name, Renderer.load(str(families.write(name, folder / name)))
    plain = Renderer.load(str(tokenizer_path()))
    plain.parser = parser_for(form)
    yield "plain", plain


async def _measure(
    form: ToolFormat, found: Sequence[tuple[str, Renderer]], turns: int, tokens: int
) -> Row:
    held: list[float] = []
    slowest = ""
    for number, unit in enumerate(units(form, turns)):
        name, renderer = found[number % len(found)]
        rng = random.Random(number) if number % 3 == 2 else None  # noqa: PLR2004, S311 - a third
        ids = turn_ids(renderer._encoding, unit, tokens, rng=rng)  # noqa: SLF001 - our own tool
        best = await held_ms(renderer, ids)
        for _ in range(_TRIES):
            best = best if best <= LIMIT_MS else min(best, await held_ms(renderer, ids))
        if best >= max(held, default=0.0):
            slowest = f"{name}: {' '.join(map(repr, unit))}"[:120]
        held.append(best)
    p50, p99, p100 = np.percentile(held, [50, 99, 100]).tolist()
    figures = {"turns": len(held), "p50_ms": p50, "p99_ms": p99, "p100_ms": p100}
    return Row(form.value, figures, {"slowest": slowest})


@program(
    option("--turns", type=int, default=1000, help="per format (1000)"),
    option("--tokens", type=int, default=8192, help="per turn (8192)"),
    option("--formats", nargs="+", type=ToolFormat, default=list(ToolFormat), metavar="NAME"),
)
def main(given: Namespace) -> Report:
    """Measure every format; none may block the loop for too long."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for form in given.formats:
            found = list(renderers(form, Path(folder)))
            with settled_heap():
                rows.append(asyncio.run(_measure(form, found, given.turns, given.tokens)))
            sys.stderr.write(_line(rows[-1]) + "\n")
    worst = max(row.figures["p100_ms"] for row in rows)
    return Report(
        "parser-time",
        tuple(rows),
        worst <= LIMIT_MS,
        {"p100_ms": worst},
        (f"the longest hold of the event loop; the limit is {LIMIT_MS:g} ms",),
        _table(rows),
    )


def _line(row: Row) -> str:
    figures = "  ".join(f"{name} {value:.1f}" for name, value in row.figures.items())
    return f"{row.subject:14}{figures}  {row.labels['slowest']}"


def _table(rows: Iterable[Row]) -> str:
    names = ("p50_ms", "p99_ms", "p100_ms")
    cells = (
        (row.subject, f"{row.figures['turns']:.0f}", *(f"{row.figures[n]:.1f} ms" for n in names))
        for row in rows
    )
    return "\n".join(table(("format", "turns", "p50", "p99", "p100"), cells))
