"""Whether two runs of the counting policy have the same records."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Final

from rollout_dev.counting import FILE, counted

RESUMED: Final = "resumption"
_TIMES: Final = frozenset({"engine_s", "tools_s", "duration_s", "timing", "finished_at"})
_SECONDS: Final = "_s"
"""How the names of durations end."""


def seed_of(given: Namespace) -> int:
    """Return the seed of the moments at which things are killed."""
    return int(given.seed) or time.time_ns() % 1_000_000


def differences(
    expected: Mapping[str, dict[str, object]],
    found: Mapping[str, dict[str, object]],
    turns: int,
    *,
    besides: frozenset[str] = frozenset(),
) -> list[str]:
    """Say what differs between the records of two runs, by episode; empty where nothing does.

    `besides`: fields that may differ, apart from times and from how often an episode went on.
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
    """Say which durations of records are negative, or longer than all of it took."""
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
