"""Compare a job in pods, of which something is killed every few seconds, with one left alone."""

from __future__ import annotations

import json
import random
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from rollout_dev.conformance.chaos import ground as grounds
from rollout_dev.conformance.chaos.counting_job import verdict_of
from rollout_dev.conformance.chaos.faults import KILLS, kill_one
from rollout_dev.conformance.chaos.ground import Ground
from rollout_dev.conformance.chaos.processes import Json, NotInTimeError
from rollout_dev.counting import FILE, counted
from rollout_dev.report import Report, Row

RESUMED: Final = "resumption"
_TIMES: Final = frozenset({"engine_s", "tools_s", "duration_s", "timing", "finished_at"})
_SECONDS: Final = "_s"
"""The suffix of the names of durations."""


def seed_of(given: Namespace) -> int:
    """Return the seed of the kill times."""
    return int(given.seed) or time.time_ns() % 1_000_000


def differences(
    expected: Mapping[str, dict[str, object]],
    found: Mapping[str, dict[str, object]],
    turns: int,
    *,
    besides: frozenset[str] = frozenset(),
) -> list[str]:
    """Return the differences between the records of two runs, by episode; empty without any.

    `besides` are fields that may differ, in addition to times and counts of resumptions.
    """
    problems = []
    lines = "".join(f"+{line}\n" for line in counted(turns).splitlines())
    for episode, record in expected.items():
        other = found.get(episode)
        if other is None:
            problems.append(f"{episode} is lost")
            continue
        expected_fields, fields = _without_times(record), _without_times(other)
        differing = [
            name
            for name in expected_fields.keys() | fields.keys()
            if name not in besides and expected_fields.get(name) != fields.get(name)
        ]
        if differing:
            problems.append(f"{episode} differs in {', '.join(differing)}")
        if FILE not in str(other["patch"]) or lines not in str(other["patch"]):
            problems.append(f"{episode} has not run each command once")
    return problems


def wrong_durations(records: Mapping[str, dict[str, object]], longest_s: float) -> list[str]:
    """Return the durations of records that are negative or longer than the whole run."""
    return [
        f"{episode}: {name} is {seconds:g}"
        for episode, record in records.items()
        for name, seconds in _durations(record)
        if not 0.0 <= seconds <= longest_s
    ]


def _durations(value: object, name: str = "") -> Iterator[tuple[str, float]]:
    match value:
        case dict():
            for key, each in value.items():
                yield from _durations(each, f"{name}.{key}".lstrip("."))
        case list():
            for index, each in enumerate(value):
                yield from _durations(each, f"{name}[{index}]")
        case int() | float() if name.endswith(_SECONDS):
            yield name, float(value)


def _without_times(record: Mapping[str, object]) -> dict[str, object]:
    return {
        name: _inner(value)
        for name, value in record.items()
        if name not in _TIMES and name != RESUMED
    }


def _inner(value: object) -> object:
    match value:
        case dict():
            return _without_times(value)
        case list():
            return [_inner(each) for each in value]
        case _:
            return value


_ALONE: Final = "job-alone"
_KILLED: Final = "job-other"
_JOB_S: Final = 3600.0


def measure(given: Namespace) -> Report:
    """Run both jobs and compare their records."""
    seed = seed_of(given)
    with grounds.opened(
        turns=given.turns, pause_s=given.pause, workers=given.workers, harness=given.harness
    ) as ground:
        _apply(ground, _ALONE, given)
        ground.until_ended(_ALONE, within_s=_JOB_S)
        before = ground.sampled() or 0
        _apply(ground, _KILLED, given)
        since = time.monotonic()
        kills = _kill(ground, random.Random(seed), given.every)  # noqa: S311 - moments
        seconds = time.monotonic() - since
        state = str(ground.status(_KILLED)["state"])
        last_words = [] if state == "Complete" else [f"it is {state}", *ground.last_words(_KILLED)]
        thrown_away = (ground.sampled() or 0) - before - given.episodes * given.turns
        expected, found = _records(ground, _ALONE), _records(ground, _KILLED)
        left = ground.leftovers(_KILLED)
    # An episode whose sandbox is killed before its first turn is written starts again.
    differing = differences(expected, found, given.turns, besides=frozenset({"attempt"}))
    problems = [*last_words, *differing, *left]
    problems += [said for each in found.values() if (said := verdict_of(each, given.turns).problem)]
    count = sum(kills.values())
    if thrown_away > (in_flight := _in_flight(kills, given)):
        problems.append(f"{thrown_away} turns were sampled again, and {in_flight} were in flight")
    figures = {
        "episodes": float(given.episodes),
        "committed": float(len(found)),
        "kills": float(count),
        "seconds": round(seconds),
        "resumed": float(sum(bool(record.get(RESUMED)) for record in found.values())),
        "attached": float(sum(_is_attached(record) for record in found.values())),
        "begun_anew": float(sum(record["attempt"] > 1 for record in found.values())),
        "turns_sampled_again": float(thrown_away),
        "turns_in_flight": float(in_flight),
        "left_behind": float(len(left)),
        "problems": float(len(problems)),
    }
    killed = ", ".join(f"{what} {number}" for what, number in kills.items())
    return Report(
        "crash_equal",
        (Row("pods, SIGKILL", figures),),
        ok=not problems and len(found) == given.episodes,
        notes=(f"seed {seed}", f"{given.turns} turns an episode", f"killed: {killed}", *problems),
    )


def _apply(ground: Ground, job: str, given: Namespace) -> None:
    ground.apply(job, episodes=given.episodes, parallelism=given.parallelism)


def _kill(ground: Ground, rng: random.Random, every_s: float) -> dict[str, int]:
    """Kill one thing after the other until the job has ended, and count the kills.

    It does not wait for recovery, and the time of a kill itself does not count as pause.
    """
    killed = dict.fromkeys(KILLS, 0)
    start = due = time.monotonic()
    while time.monotonic() < start + _JOB_S:
        due += rng.uniform(0.0, 2 * every_s)
        # No more queries than kills: the API server is busy enough.
        time.sleep(max(0.0, due - time.monotonic()))
        if ground.has_ended(_KILLED):
            sys.stderr.write("\n")
            return killed
        (what,) = rng.choices(list(KILLS), list(KILLS.values()))
        with suppress(NotInTimeError):
            # If there is none at this moment, nothing is killed.
            kill_one(what, ground, _KILLED, rng)
            killed[what] += 1
        seconds = time.monotonic() - start
        sys.stderr.write(f"\r{seconds:.0f} s: {sum(killed.values())} kills")
    raise NotInTimeError(f"the end of the job {_KILLED}: not within {_JOB_S:g} s")


def _is_attached(record: Json) -> bool:
    """Return whether an episode was resumed in its original sandbox."""
    resumption = record.get(RESUMED)
    return bool(resumption and resumption["attached"])


def _in_flight(kills: Mapping[str, int], given: Namespace) -> int:
    """Return how many turns were in flight in the processes that were killed.

    A harness that is killed with its sandbox begins anew, so all its turns were.
    """
    each = {"worker": -(-given.parallelism // given.workers), "operator": 0}
    each["sandbox"] = int(given.turns) if given.harness else 1
    return sum(each.get(what, int(given.parallelism)) * number for what, number in kills.items())


def _records(ground: Ground, job: str) -> Mapping[str, Json]:
    """Return the records of a job by episode, as if the jobs had one name."""
    records = [
        json.loads(json.dumps(record).replace(f"{job}/", "job/")) for record in ground.records(job)
    ]
    return {str(record["episode"]): record for record in records}
