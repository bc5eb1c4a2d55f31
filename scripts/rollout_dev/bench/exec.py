"""Time of one command in a pod: ours, other clients, and the floor below all of them.

In a namespace made for the run, subjects take turns in the same pods: `true` one after the other,
in many pods at once, 64 KiB and 20 MB of output, 5 MB of input. The floors are one exec stream that
stays open, with `cat` or with a bare shell that starts /bin/true at its other end.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

from rollout_dev.exec_clients import catalog, ours
from rollout_dev.exec_clients.base import (
    ECHO,
    SHELL,
    ClientTarget,
    CommandResult,
    Runner,
    Site,
    Stream,
    open_site,
    room_for,
)
from rollout_dev.report import Report, Row, option, program
from swe_rollout.cluster.exec import ExecTarget
from swe_rollout.sandbox.pods import pod_spec
from swe_rollout.sandbox.pods.running import RunningPod

TRUE = ("true",)
LONG_S = 8.0
"""A transfer that takes longer is not repeated."""
_P99 = 0.99


@dataclass(frozen=True, slots=True)
class Subject:
    """A client, bound to each of some pods."""

    name: str
    runners: Sequence[Runner]
    batch: int
    """Commands in a row in each turn; many if they are quick."""
    per_pod: int
    """Commands for each pod while all are busy."""


@dataclass(slots=True)
class Samples:
    """The samples of one subject."""

    latencies_s: list[list[float]] = field(default_factory=list)
    """Seconds of each command, by turn."""
    cpu_s: list[float] = field(default_factory=list)
    """CPU seconds per command, by turn."""
    per_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Commands per second, by number of pods, by round."""
    bulk_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of whole transfers, by kind of transfer, by round."""
    failed: str = ""
    """The error that ended its measurement; empty without one."""

    def figures(self) -> dict[str, float]:
        """Return medians of the rounds; p99 is that of all commands together."""
        every = sorted(latency for batch in self.latencies_s for latency in batch)
        found: dict[str, float] = {}
        if every:
            found["p50_ms"] = round(self.p50_s * 1e3, 3)
            found["p99_ms"] = round(every[min(len(every) - 1, int(_P99 * len(every)))] * 1e3, 3)
            found["client_cpu_ms"] = round(statistics.median(self.cpu_s) * 1e3, 4)
        for pods, rates in self.per_s.items():
            found[f"pods_{pods}_per_s"] = round(statistics.median(rates), 1)
        for what, times in self.bulk_s.items():
            if not times:
                continue
            found[f"{what}_ms"] = round(statistics.median(times) * 1e3, 1)
        return found

    @property
    def p50_s(self) -> float:
        """The median of the turns' medians."""
        return statistics.median(statistics.median(batch) for batch in self.latencies_s)


@dataclass(frozen=True, slots=True)
class Bulk:
    """A command with a large input or output."""

    what: str
    argv: tuple[str, ...]
    stdin: bytes = b""
    expected: int = 0
    """Expected bytes of stdout; fewer are a failure."""


async def latency_round(subject: Subject, samples: Samples) -> None:
    """Run one command after the other in one pod."""
    runner = subject.runners[0]
    cpu = _cpu_s()
    batch = [await timed(lambda: runner.run(TRUE)) for _ in range(subject.batch)]
    samples.cpu_s.append((_cpu_s() - cpu) / subject.batch)
    samples.latencies_s.append(batch)


async def busy_round(subject: Subject, samples: Samples, *, pods: int) -> None:
    """Run commands in all of `pods` at once, one after the other in each."""

    async def keep_busy(runner: Runner) -> None:
        for _ in range(subject.per_pod):
            await runner.run(TRUE)

    chosen = subject.runners[:pods]
    took_s = await timed(lambda: asyncio.gather(*map(keep_busy, chosen)))
    samples.per_s[pods].append(len(chosen) * subject.per_pod / took_s)


async def bulk_round(subject: Subject, samples: Samples, *, bulk: Bulk) -> None:
    """Run one transfer, unless the client can't do it or an earlier one took too long."""
    if max(samples.bulk_s[bulk.what], default=0.0) > LONG_S:
        return
    started = time.monotonic()
    try:
        found = await subject.runners[0].run(bulk.argv, stdin=bulk.stdin)
    except NotImplementedError:
        return
    if len(found.stdout) < bulk.expected:
        raise RuntimeError(f"{bulk.what}: {len(found.stdout)} of {bulk.expected} bytes arrived")
    samples.bulk_s[bulk.what].append(time.monotonic() - started)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    """Run `work` and return how many seconds it took."""
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


IMAGE = "swe-rollout/sandbox-base:local"
FLOOR, GOAL_FLOOR = "true by a bare shell over one stream", 1.5
ECHOED = "echo over one stream"
KUBERNETES, GOAL_KUBERNETES = "kubernetes", 0.04
KUBECTL, GOAL_KUBECTL = "kubectl exec", 1.5
_GOALS = (
    f"goals: at most {GOAL_FLOOR:g} times the floor, {GOAL_KUBERNETES:g} times {KUBERNETES} (p50), "
    f"and {GOAL_KUBECTL:g} times {KUBECTL} for 20 MB of output"
)
_BIG = "out_20_mb"
_BULKS = (
    Bulk("out_64_kib", ("head", "-c", "65536", "/dev/zero"), expected=65536),
    Bulk(_BIG, ("head", "-c", "20000000", "/dev/zero"), expected=20_000_000),
    # The command counts: clients of protocol v4 cannot signal the end of stdin.
    Bulk("in_5_mb", ("sh", "-c", "head -c 5000000 | wc -c"), stdin=bytes(5_000_000)),
)
_HEAVY = 16
"""The most pods in which a client that starts a process per command is kept busy."""


@dataclass(frozen=True, slots=True)
class Size:
    """The rounds, pods and commands of a run."""

    rounds: int
    turns: int
    """Turns of single commands in each round, for each subject."""
    pods: tuple[int, ...]
    ours: int
    theirs: int
    """Commands in a turn of another client."""
    busy: int
    """Commands of ours for each pod while all are busy."""


FULL = Size(rounds=7, turns=5, pods=(1, 16, 64), ours=20, theirs=2, busy=50)
QUICK = Size(rounds=5, turns=3, pods=(1, 4), ours=20, theirs=1, busy=20)


@program(
    option("--image", default=IMAGE, help="of the pods; needs head and wc"),
    quick="fewer rounds and pods",
    kubeconfig=True,
    shows_logs=True,
)
async def main(given: Namespace) -> Report:
    """Measure all clients."""
    size, image = QUICK if given.quick else FULL, given.image
    async with (
        open_site(given.kubeconfig, prefix="bench-exec-", images=(image,)) as site,
        AsyncExitStack() as stack,
    ):
        policy = await ours.without_policy_if_forbidden(site)
        provider = await stack.enter_async_context(ours.provider(site))
        room = await room_for(site.client, most=max(size.pods))
        sys.stderr.write(f"starting {room} pods\n")
        pods = await ours.start_many(provider, image, room)
        subjects = await _subjects(site, pods, size, stack)
        samples = {subject.name: Samples() for subject in subjects}
        await _rounds(subjects, samples, sorted({min(n, room) for n in size.pods}), size)
        notes = [policy] if policy else []
        if room < max(size.pods):
            notes.append(f"the nodes have room for {room} pods, not for {max(size.pods)}")
    return _report(subjects, samples, size, notes)


async def _subjects(
    site: Site, pods: Sequence[RunningPod], size: Size, stack: AsyncExitStack
) -> list[Subject]:
    found = [
        Subject(
            ours.NAME,
            [ours.Ours(pod, max_output=32 << 20) for pod in pods],
            batch=size.ours,
            per_pod=size.busy,
        )
    ]
    for name, argv in ((ECHOED, ECHO), (FLOOR, SHELL)):
        target = ExecTarget(site.namespace, pods[0].name, pod_spec.CONTAINER)
        stream = await Stream.open(site.client, target, argv)
        stack.push_async_callback(stream.aclose)
        found.append(Subject(name, [_Floor(stream)], size.ours, 0))
    kubeconfig, container = str(site.kubeconfig), pod_spec.CONTAINER
    targets = [
        ClientTarget(kubeconfig, site.context, site.namespace, pod.name, container) for pod in pods
    ]
    for peer in catalog.peers():
        if not peer.missing and peer.name != "kubernetes.aio":
            few = _HEAVY if peer.name == KUBECTL else len(targets)
            runners = [peer.bind(target) for target in targets[:few]]
            for runner in runners:
                stack.push_async_callback(runner.aclose)
            found.append(Subject(peer.name, runners, batch=size.theirs, per_pod=1))
    return found


@dataclass(frozen=True, slots=True)
class _Floor:
    """A stream as a `Runner`; it ignores the command and runs its own program."""

    stream: Stream

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 120.0
    ) -> CommandResult:
        del argv, stdin, timeout_s
        await self.stream.turn()
        return CommandResult(0, b"")

    async def aclose(self) -> None:
        """The stream is closed by its opener."""


async def _rounds(
    subjects: Sequence[Subject], samples: dict[str, Samples], pods: Sequence[int], size: Size
) -> None:
    await _each(subjects, samples, _warm)
    for number in range(size.rounds):
        sys.stderr.write(f"round {number + 1} of {size.rounds}\n")
        # Back and forth: the after-effects of a turn would otherwise always hit the same subject.
        for turn in range(number, number + size.turns):
            await _each(subjects[:: -1 if turn % 2 else 1], samples, latency_round)
        for count in pods:
            able = [each for each in subjects if each.per_pod and len(each.runners) >= count]
            await _each(able, samples, partial(busy_round, pods=count))
        able = [each for each in subjects if not isinstance(each.runners[0], _Floor)]
        for bulk in _BULKS:
            await _each(able, samples, partial(bulk_round, bulk=bulk))


async def _warm(subject: Subject, samples: Samples) -> None:
    """Run one command everywhere, so that connections, imports and caches cost no other."""
    del samples
    for runner in subject.runners:
        await runner.run(TRUE)


async def _each(
    subjects: Sequence[Subject],
    samples: dict[str, Samples],
    work: Callable[[Subject, Samples], Awaitable[None]],
) -> None:
    """Do a piece of work with each subject; drop one that fails, and show why in its row."""
    for subject in subjects:
        found = samples[subject.name]
        if found.failed:
            continue
        (outcome,) = await asyncio.gather(work(subject, found), return_exceptions=True)
        if isinstance(outcome, Exception):
            found.failed = f"{type(outcome).__name__}: {outcome}"[:300]


def _report(
    subjects: Sequence[Subject], samples: dict[str, Samples], size: Size, notes: list[str]
) -> Report:
    rows = [
        Row(subject.name, samples[subject.name].figures(), skipped=samples[subject.name].failed)
        for subject in subjects
    ]
    rows += [Row(peer.name, skipped=peer.missing) for peer in catalog.peers() if peer.missing]
    slow = [
        f"{subject.name}: {what} took more than {LONG_S:g} s and was not repeated"
        for subject in subjects
        for what, times in samples[subject.name].bulk_s.items()
        if max(times, default=0.0) > LONG_S
    ]
    ratios = _ratios(samples)
    return Report(
        "exec",
        tuple(rows),
        ok=_holds(samples, ratios),
        ratios=ratios,
        notes=(
            f"medians of {size.rounds} rounds, of {size.turns} turns each for single commands",
            "p99 of all commands",
            _GOALS,
            f"{KUBECTL} runs in at most {_HEAVY} pods at once: it starts a process per command",
            *slow,
            *notes,
        ),
    )


def _ratios(samples: dict[str, Samples]) -> dict[str, float]:
    mine, found = samples[ours.NAME].figures(), {}
    for name, peer, figure in (
        ("ours_to_floor", FLOOR, "p50_ms"),
        ("ours_to_kubernetes_p50", KUBERNETES, "p50_ms"),
        ("ours_to_kubectl_20mb", KUBECTL, f"{_BIG}_ms"),
    ):
        theirs = samples[peer].figures() if peer in samples else {}
        if figure in theirs and figure in mine:
            found[name] = round(mine[figure] / theirs[figure], 4)
    return found


def _holds(samples: dict[str, Samples], ratios: dict[str, float]) -> bool:
    return (
        not samples[ours.NAME].failed
        and ratios.get("ours_to_floor", GOAL_FLOOR + 1) <= GOAL_FLOOR
        and ratios.get("ours_to_kubernetes_p50", 1) <= GOAL_KUBERNETES
        and ratios.get("ours_to_kubectl_20mb", 0) <= GOAL_KUBECTL
    )
