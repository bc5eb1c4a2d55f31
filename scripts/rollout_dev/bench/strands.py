"""One long episode of a Strands agent, over our model and over strands-sglang's, side by side.

Both play the same 400 tool turns against one scripted `/generate` server. It reports how many turns
each reaches, how many sampled ids it keeps and trains, and the cost of a turn by its number.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import sys
from argparse import Namespace
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from rollout_dev.bench.loops import serving
from rollout_dev.bench.workload import SYSTEM, TASK, Workload
from rollout_dev.peers.environment import HOW, is_installed
from rollout_dev.report import Report, Row, option, program
from swe_rollout.integrations.strands.renderers import get_tokenizer
from swe_rollout.testing.tokens.subjects import GivenTurn

if TYPE_CHECKING:  # The package may not be installed.
    from rollout_dev.peers.strands_loop import PlayedEpisode

OURS: Final = "swe-rollout"
THEIRS: Final = "strands-sglang 0.4.3"
TURNS: Final = 400
_WINDOW: Final = 40
"""The number of turns whose median time is one figure."""


@program(
    option("--turns", type=int, default=TURNS, help=f"tool turns; {TURNS} by default"),
    shows_logs=True,
)
def main(given: Namespace) -> Report:
    """Play both; ours has to play all turns and train every sampled id."""
    return measure(given.turns)


def measure(turns: int) -> Report:
    """Play both episodes, one after the other."""
    if not is_installed("strands_sglang"):
        return Report("strands", (Row(OURS, skipped=HOW), Row(THEIRS, skipped=HOW)), ok=True)
    # The packages may not be installed.
    from rollout_dev.peers import strands_loop  # noqa: PLC0415

    logging.getLogger("strands").setLevel(logging.CRITICAL)
    work = Workload()
    script = (*work.turns(turns), work.last())
    rows, ok = [], False
    for subject, play in ((OURS, strands_loop.play_ours), (THEIRS, strands_loop.play_theirs)):
        sys.stderr.write(f"{subject}: {turns} turns\n")
        with serving(work, turns) as url:
            scene = strands_loop.StrandsScene(
                get_tokenizer(work.path), url, SYSTEM, TASK, work.result
            )
            played = asyncio.run(play(scene))
        row = _row(subject, played, script)
        if subject == OURS:
            figures = row.figures
            kept = not (figures["sampled_again_tokens"] or figures["untrained_tokens"])
            ok = figures["turns"] == len(script) and kept
        rows.append(row)
    notes = (
        (
            "time of a turn: median, from one tool call to the next; "
            "client CPU: the client's share of it"
        ),
        "sampled again tokens: ids of turns that differ from what the server sampled",
        "untrained tokens: sampled ids of the turns it reached whose mask is not 1",
        "one client process; the server is another process on the same machine",
    )
    return Report("strands", tuple(rows), ok=ok, notes=notes)


def _row(subject: str, played: PlayedEpisode, script: Sequence[GivenTurn]) -> Row:
    pairs = list(zip(played.turns, script, strict=False))
    sampled = sum(len(turn.ids) for _, turn in pairs)
    differing = sum(
        a != b for ids, turn in pairs for a, b in zip(ids, turn.ids, strict=False)
    ) + sum(abs(len(ids) - len(turn.ids)) for ids, turn in pairs)
    figures: dict[str, float] = {
        "turns": len(played.turns),
        "requests": len(played.turns),
        "sampled_tokens": sampled,
        "sampled_again_tokens": differing,
        "untrained_tokens": sampled - played.trained,
    }
    for start in range(0, len(played.called_at) - 1, _WINDOW):
        calls = played.called_at[start : start + _WINDOW + 1]
        window = f"turns_{start + 1}_to_{start + len(calls) - 1}"
        for place, name in enumerate(("ms", "cpu_ms")):
            spans = [1e3 * (b[place] - a[place]) for a, b in pairwise(calls)]
            figures[f"{name}_{window}"] = round(statistics.median(spans), 1)
    return Row(subject, figures, {"ended": played.died or "by itself"})
