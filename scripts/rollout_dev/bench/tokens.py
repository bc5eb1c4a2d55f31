"""Cost of keeping tokens in each turn: ours, a hand-written delta, and peers, in one run.

It measures the time from a sampled turn and its tool result to the next request's ids, at 50, 200
and 1,000 turns, and counts requests that don't begin with the earlier ids as breaks.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rollout_dev.bench.workload import FIRST, NOISE, TOOLS, Workload, large_vocabulary
from rollout_dev.peers.tokens import FLOOR, RERENDER, Keeper, keepers
from rollout_dev.report import Report, Row, program
from swe_rollout.agent.renderer import Renderer
from swe_rollout.testing.tokens.subjects import GivenTurn, TokenSubject
from swe_rollout.tokens.log import InputIds, TokenLog

_P99 = 0.99


class Candidate(Protocol):
    """Keeps the tokens of one conversation."""

    def begin(self) -> None:
        """Build the first request."""
        ...

    def turn(self, sampled: GivenTurn, result: str) -> None:
        """Append a turn and the result of its call, and build the next request. This is timed."""
        ...

    def request(self) -> Sequence[int]:
        """Return the ids of the latest request."""
        ...


class Ours(Candidate):
    """An agent's work on tokens in a turn: log, delta, check, request."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._log = TokenLog()
        self._turn = 0
        self._request = InputIds.of([])

    def begin(self) -> None:
        self._log.append_prompt(self._renderer.prompt(FIRST, TOOLS).ids)
        self._request = self._log.input_ids()

    def turn(self, sampled: GivenTurn, result: str) -> None:
        log = self._log
        log.append_sampled(sampled.ids, sampled.logprobs, turn=self._turn, weight_version="v1")
        self._turn += 1
        delta = self._renderer.delta(
            log.last_id(), sampled.calls, results=[result], tools=TOOLS, open_reasoning=False
        )
        log.append_delta(delta.ids, turn=self._turn)
        log.request()
        self._request = log.input_ids()

    def request(self) -> Sequence[int]:
        return self._request.tolist()


class Other(Candidate):
    """Any other subject, through the interface of the conformance checks."""

    def __init__(self, subject: TokenSubject) -> None:
        self._subject = subject
        self._request: Sequence[int] = ()

    def begin(self) -> None:
        self._request = self._subject.start(FIRST, TOOLS)

    def turn(self, sampled: GivenTurn, result: str) -> None:
        self._subject.add_turn(sampled)
        self._request = self._subject.add_results([result])

    def request(self) -> Sequence[int]:
        # Copy it: the list may be the subject's own.
        return self._request


@dataclass(slots=True)
class Samples:
    """The samples of one subject at one number of turns."""

    rounds: list[list[float]] = field(default_factory=list)
    """The seconds of each turn."""
    breaks: int = 0
    tokens: int = 0
    """The number of tokens of the last request."""

    @property
    def p50_ms(self) -> float:
        """Median of the rounds' medians."""
        return 1e3 * statistics.median(map(statistics.median, self.rounds))

    def ratio_to(self, other: Samples) -> float:
        """Return the median over rounds of the ratio to another subject in the same minute."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        medians = (statistics.median(own) / statistics.median(theirs) for own, theirs in pairs)
        return statistics.median(medians)

    @property
    def mean_ms(self) -> float:
        """Median of the rounds' means."""
        return 1e3 * statistics.median(map(statistics.fmean, self.rounds))

    @property
    def p99_ms(self) -> float:
        """Median of the rounds' 99th percentiles."""
        return 1e3 * statistics.median(map(_p99, self.rounds))


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(_P99 * len(seconds)))]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A subject: its name, and a factory of conversations."""

    name: str
    start: Callable[[], Candidate]


def check(entrant: Entrant, turns: Sequence[GivenTurn], work: Workload, samples: Samples) -> None:
    """Play one conversation to count breaks and to warm up."""
    candidate = entrant.start()
    candidate.begin()
    for sampled in turns:
        expected = [*candidate.request(), *sampled.ids]
        candidate.turn(sampled, work.result)
        samples.breaks += list(candidate.request()[: len(expected)]) != expected
    samples.tokens = len(candidate.request())


def timed(entrant: Entrant, turns: Sequence[GivenTurn], work: Workload, samples: Samples) -> None:
    """Play one conversation and time each turn."""
    candidate = entrant.start()
    candidate.begin()
    gc.collect()
    seconds: list[float] = []
    for sampled in turns:
        began = time.perf_counter()
        candidate.turn(sampled, work.result)
        seconds.append(time.perf_counter() - began)
    samples.rounds.append(seconds)


def parse_ms(work: Workload, turns: Sequence[GivenTurn]) -> float:
    """Return the median time to parse the calls of a turn from its ids."""
    seconds: list[float] = []
    for sampled in turns:
        began = time.perf_counter()
        work.parse(sampled.ids)
        seconds.append(time.perf_counter() - began)
    return 1e3 * statistics.median(seconds)


OURS: Final = "swe-rollout"
LARGE: Final = 150_000
FLAT: Final = 1.5
"""Limit on the cost of a turn after 1,000 turns, as a multiple of that after 50 turns."""
TO_FLOOR: Final = 1.15
"""The most time at 1,000 turns, relative to the hand-written delta."""
RENDERED: Final = 50
"""The most turns of conversations rendered from scratch each turn: these take minutes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The lengths of conversations and the number of rounds in a run."""

    turns: tuple[int, ...]
    rounds: int
    long_rounds: int
    """Rounds of the longest conversations."""
    checked_turns: int
    """Breaks are not counted in conversations longer than this."""


FULL: Final = Plan((50, 200, 1000), 7, 5, checked_turns=1000)
QUICK: Final = Plan((50, 200, 1000), 5, 1, checked_turns=200)


@program(quick="fewer rounds, under a minute", shows_logs=True)
def main(given: Namespace) -> Report:
    """Run all rounds."""
    plan, work = QUICK if given.quick else FULL, Workload()
    peers = keepers()
    entrants = [
        Entrant(OURS, lambda: Ours(work.renderer)),
        *(_entrant(keeper, work) for keeper in peers if not keeper.skipped),
    ]
    found: dict[str, dict[int, Samples]] = {each.name: {} for each in entrants}
    for count in plan.turns:
        _play(plan, count, entrants, work, found)
    rows = [_row(name, by_count) for name, by_count in found.items()]
    rows += [Row(keeper.name, skipped=keeper.skipped) for keeper in peers if keeper.skipped]
    rows.append(Row(f"{OURS}: parse", {"p50_ms": round(parse_ms(work, work.turns(200)), 3)}))
    rows.append(Row(f"{OURS}: memory, {LARGE:,} tokens", _memory(work)))
    return _report(tuple(rows), found)


def _memory(work: Workload) -> dict[str, float]:
    """Return the memory of a process with a large vocabulary, after each step of its start."""
    command = [sys.executable, "-P", "-m", "rollout_dev.bench.vocabulary_memory"]
    folder = large_vocabulary(work.path, LARGE)
    ran = subprocess.run([*command, folder], check=True, stdout=subprocess.PIPE)
    figures: dict[str, float] = json.loads(ran.stdout)
    return figures


def _entrant(keeper: Keeper, work: Workload) -> Entrant:
    start = keeper.bind(work.renderer)
    return Entrant(keeper.name, lambda: Other(start()))


def _play(
    plan: Plan,
    count: int,
    entrants: Sequence[Entrant],
    work: Workload,
    found: dict[str, dict[int, Samples]],
) -> None:
    turns = work.turns(count)
    now = [each for each in entrants if each.name != RERENDER or count <= RENDERED]
    for entrant in now:
        found[entrant.name][count] = samples = Samples()
        if count <= plan.checked_turns:
            check(entrant, turns, work, samples)
    rounds = plan.long_rounds if count == max(plan.turns) else plan.rounds
    for number in range(rounds):
        # No subject should always run right after the same other one.
        for entrant in [*now[number % len(now) :], *now[: number % len(now)]]:
            sys.stderr.write(f"\r{count} turns, round {number + 1} of {rounds}: {entrant.name:40}")
            timed(entrant, turns, work, found[entrant.name][count])
    sys.stderr.write("\n")


def _row(name: str, by_count: dict[int, Samples]) -> Row:
    figures: dict[str, float] = {}
    for count, samples in by_count.items():
        figures[f"p50_ms_{count}"] = round(samples.p50_ms, 3)
        figures[f"mean_ms_{count}"] = round(samples.mean_ms, 3)
        figures[f"p99_ms_{count}"] = round(samples.p99_ms, 3)
        if samples.tokens:
            figures[f"tokens_{count}"] = samples.tokens
            figures[f"prefix_breaks_{count}"] = samples.breaks
    if (flatness := _flatness(by_count)) is not None:
        figures["flatness"] = round(flatness, 2)
    return Row(name, figures)


def _flatness(by_count: dict[int, Samples]) -> float | None:
    shortest, longest = min(FULL.turns), max(FULL.turns)
    if longest not in by_count:
        return None
    return by_count[longest].p50_ms / by_count[shortest].p50_ms


def _report(rows: tuple[Row, ...], found: dict[str, dict[int, Samples]]) -> Report:
    ours = found[OURS]
    ratios: dict[str, float] = {}
    for name, by_count in found.items():
        if name in (OURS, RERENDER):
            continue
        each = {count: ours[count].ratio_to(by_count[count]) for count in by_count}
        key = "floor" if name == FLOOR else name.split()[0].partition("-")[0]
        ratios |= {f"ours_to_{key}_{count}": round(ratio, 3) for count, ratio in each.items()}
        ratios[f"ours_to_{key}"] = round(max(each.values()), 3)
    breaks = sum(samples.breaks for samples in ours.values())
    flatness = _flatness(ours) or 0.0
    ratios["flatness"] = round(flatness, 3)
    is_near = ratios[f"ours_to_floor_{max(FULL.turns)}"] <= TO_FLOOR
    is_first = ratios.get("ours_to_strands", 0.0) <= 1
    ok = breaks == 0 and is_near and is_first and flatness <= FLAT
    return Report(
        "tokens",
        rows,
        ok=ok,
        ratios=ratios,
        notes=(
            "time from a sampled turn and its result to the ids of the whole next request",
            f"{NOISE:.0%} of the longer tokens are sampled as two shorter ones",
            (
                "goals: no breaks, at most the time of strands at every length (p50), and a p50 "
                f"at 1,000 turns of at most {FLAT:g} times that at 50 and {TO_FLOOR:g} times the "
                "hand-written delta"
            ),
            "ours also writes the text of the request and its hash; others only make lists of ids",
            "memory: of a worker's process with its modules, then the tokenizer, then the renderer",
        ),
    )
