"""CPU time that metrics and spans take from a turn of a whole agent loop.

The real agent, engine pool and one scripted `/generate` server; the sandbox prints from memory, so
a turn is as short as it can be. Subjects take turns: unobserved, with metrics, and with metrics and
spans, which go to an exporter that keeps nothing. Time is the CPU time of this process.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from rollout_dev.bench.loops import Batch, Entrant, Ours, Samples, play, serving
from rollout_dev.bench.workload import Workload
from rollout_dev.report import Report, Row, program
from swe_rollout.events import Events, Subscriber
from swe_rollout.telemetry.metrics import RolloutMetrics
from swe_rollout.telemetry.otlp import observer_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

NONE: Final = "unobserved"
METRICS: Final = "metrics"
BOTH: Final = "metrics and spans"
EPISODES: Final = 16
TURNS: Final = 25
METRICS_GOAL_US: Final = 200.0
"""CPU time per turn; a turn takes seconds if a model samples it."""
BOTH_GOAL_US: Final = 1000.0


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...


@program(quick="fewer rounds", shows_logs=True)
def main(given: Namespace) -> Report:
    """Measure all subjects."""
    rounds = 3 if given.quick else 11
    work, samples = Workload(), {name: Samples() for name in (NONE, METRICS, BOTH)}
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    spans = observer_of(provider)
    subscribers: dict[str, Subscriber | None] = {
        NONE: None,
        METRICS: Events(RolloutMetrics()),
        BOTH: Events(RolloutMetrics(), spans),
    }
    entrants = [
        Entrant(name, lambda url, publish=publish: Ours(work, url, publish))  # type: ignore[misc]
        for name, publish in subscribers.items()
    ]
    with serving(work, TURNS) as url:
        batch = Batch(url, EPISODES, TURNS)
        for number in range(rounds + 1):
            for entrant in entrants[number % 3 :] + entrants[: number % 3]:
                sys.stderr.write(f"\rround {number} of {rounds}: {entrant.name:20}")
                # The first round only warms up.
                play(entrant, batch, samples[entrant.name] if number else Samples())
    sys.stderr.write("\n")
    provider.shutdown()
    metrics, both = (_extra_us(samples[name], samples[NONE]) for name in (METRICS, BOTH))
    rows = [
        Row(name, {"cpu_us": round(1e3 * each.client_cpu_ms, 1)}) for name, each in samples.items()
    ]
    return Report(
        "observe",
        tuple(rows),
        ok=metrics <= METRICS_GOAL_US and both <= BOTH_GOAL_US,
        ratios={"metrics_us_per_turn": round(metrics, 1), "both_us_per_turn": round(both, 1)},
        notes=(
            f"{EPISODES} episodes at once of {TURNS} tool turns, {rounds} rounds",
            "a turn is one call of the engine, one tool call and one command",
        ),
    )


def _extra_us(observed: Samples, plain: Samples) -> float:
    """Return the CPU time per turn that observing adds, as the median over rounds."""
    pairs = zip(observed.cpu_ms, plain.cpu_ms, strict=True)
    extra = sorted(1e3 * (own - bare) for own, bare in pairs)
    return extra[len(extra) // 2]
