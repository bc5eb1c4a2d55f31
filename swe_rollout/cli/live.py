"""The live view: one screen of fixed height, redrawn four times a second, on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group as Lines
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from swe_rollout.cli.output import number
from swe_rollout.progress import Phase
from swe_rollout.viewer.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from swe_rollout.cli.tally import Outcome, Tally

_BARS = "▁▂▃▄▅▆▇█"
_LATENCY_EDGES_S = (0.5, 1, 2, 4, 8, 16, 32, 64, 128)
_OUTCOME_ROWS = 5
_BAR_WIDTH = 30


@dataclass(frozen=True, slots=True)
class Title:
    """What does not change while a job runs."""

    job: str
    policy: str


def screen(tally: Tally, title: Title) -> RenderableType:
    """The whole view: the same number of lines whatever happens."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row(Text("episodes", "dim"), _episodes(tally))
    facts.add_row(Text("phases", "dim"), _phases(tally))
    facts.add_row(Text("reward", "dim"), _reward(tally))
    facts.add_row(Text("turn", "dim"), _turns(tally))
    return Lines(_head(tally, title), Text(), facts, Text(), _outcomes(tally.outcomes))


def sparkline(counts: Sequence[int]) -> str:
    """Counts as one character each; anything above zero can be seen."""
    top = max(counts, default=0) or 1
    steps = len(_BARS) - 1
    return "".join(_BARS[max(1, round(count / top * steps)) if count else 0] for count in counts)


def clock(seconds: float) -> str:
    """`06:41`, or `2:06:41` from an hour on."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def _head(tally: Tally, title: Title) -> Text:
    eta = tally.eta_s
    left = "" if eta is None else f"   eta ~{clock(eta)}"
    words = f"   {one_line(title.policy)}   {clock(tally.elapsed_s)}{left}"
    return cut(Text.assemble((f"rolloutjob/{one_line(title.job)}", "bold"), words))


def _episodes(tally: Tally) -> RenderableType:
    rate = tally.per_minute
    running = len(tally.running)
    pending = max(tally.episodes - tally.done_episodes - running, 0)
    words = [
        f"{tally.done_episodes}/{tally.episodes}",
        "" if rate is None else f"{rate:.1f}/min",
        f"{running} running · {pending} pending",
        f"{tally.retries} retried" if tally.retries else "",
    ]
    row = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=max(tally.episodes, 1), completed=tally.done_episodes, width=_BAR_WIDTH)
    row.add_row(bar, cut(Text("   ".join(filter(None, words)))))
    return row


def _phases(tally: Tally) -> Text:
    counts = tally.phases()
    return cut(Text(" · ".join(f"{phase} {counts[phase]}" for phase in Phase)))


def _reward(tally: Tally) -> Text:
    signal = sum(group.has_signal for group in tally.groups.values())
    words = [
        f"mean {number(tally.mean_reward)}",
        f"resolved {tally.resolved}/{tally.finished}",
        f"groups with signal {signal}/{len(tally.groups)}",
        f"masked {tally.masked}" if tally.masked else "",
    ]
    line = Text.assemble((sparkline(tally.reward_bins), "green"), "  ")
    return cut(line.append("   ".join(filter(None, words))))


def _turns(tally: Tally) -> Text:
    hit = tally.cache_hit
    words = [
        f"p50 {number(tally.turn_percentile(50), digits=1)}s",
        f"p95 {number(tally.turn_percentile(95), digits=1)}s",
        "" if hit is None else f"prefix-cache hit {hit:.0%}",
        f"{tally.sampled_tokens:,} tokens sampled",
    ]
    line = Text.assemble((sparkline(_latency_bins(tally.turn_s)), "cyan"), "  ")
    return cut(line.append("   ".join(filter(None, words))))


def _latency_bins(seconds: Iterable[float]) -> list[int]:
    bins = [0] * (len(_LATENCY_EDGES_S) + 1)
    for value in seconds:
        bins[sum(value >= edge for edge in _LATENCY_EDGES_S)] += 1
    return bins


def _outcomes(outcomes: dict[str, Outcome]) -> Table:
    """The most frequent outcomes; always as many lines."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("OUTCOME", no_wrap=True, min_width=16)
    table.add_column("EPISODES", justify="right", no_wrap=True)
    table.add_column("REWARD", justify="right", no_wrap=True)
    table.add_column("LATEST", no_wrap=True, overflow="ellipsis", ratio=1)
    ranked = sorted(outcomes.items(), key=lambda item: -item[1].episodes)[:_OUTCOME_ROWS]
    for name, outcome in ranked:
        reward = number(outcome.mean_reward)
        table.add_row(name, str(outcome.episodes), reward, Text(one_line(outcome.latest)))
    for _ in range(_OUTCOME_ROWS - len(ranked)):
        table.add_row("", "", "", "")
    return table


def cut(text: Text) -> Text:
    """The text on one line, however narrow the screen is."""
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text
