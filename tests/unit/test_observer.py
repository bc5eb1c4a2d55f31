"""Observers: several at once, whose errors end nothing, beside a display."""

from __future__ import annotations

import inspect

import pytest
from structlog.testing import capture_logs

from swe_rollout import observer
from swe_rollout.observer import (
    NO_WAIT_S,
    ObservedProgress,
    Observer,
    Observers,
    Service,
    waiting,
)
from swe_rollout.progress import Phase
from unit.export.export_parts import trajectory
from unit.telemetry.telemetry_parts import EPISODE
from unit.worker.worker_parts import Listener


class Breaks(Observer):
    """Fails for every phase."""

    def phase(self, episode: object, phase: Phase) -> None:  # noqa: ARG002
        raise ValueError("no room")


class Phases(Observer):
    def __init__(self) -> None:
        self.seen: list[Phase] = []
        self.waits: list[float] = []

    def phase(self, episode: object, phase: Phase) -> None:  # noqa: ARG002
        self.seen.append(phase)

    def waited(self, service: Service, seconds: float) -> None:  # noqa: ARG002
        self.waits.append(seconds)


def test_an_observer_that_fails_ends_nothing_and_is_reported_once() -> None:
    other = Phases()
    observers = Observers([Breaks(), other])
    with capture_logs() as lines:
        observers.phase(EPISODE, Phase.START)
        observers.phase(EPISODE, Phase.AGENT)
    assert other.seen == [Phase.START, Phase.AGENT]
    assert [line["event"] for line in lines] == ["observer_failed"]


def test_several_observers_are_told_of_every_event() -> None:
    """Each method of `Observer` passes on its own arguments, under its own name."""
    told: list[tuple[str, tuple[object, ...]]] = []

    class Any(Observer):
        def __getattribute__(self, name: str) -> object:
            return lambda *arguments: told.append((name, arguments))

    observers = Observers([Any()])
    events = [name for name, _ in inspect.getmembers(Observer, inspect.isfunction)]
    for name in (each for each in events if not each.startswith("_")):
        method = getattr(observers, name)
        arguments = tuple(object() for _ in inspect.signature(method).parameters)
        method(*arguments)
        assert told.pop() == (name, arguments)
        assert not told


def test_a_display_and_an_observer_are_told_the_same() -> None:
    listener, phases = Listener(), Phases()
    progress = ObservedProgress(listener, phases)
    progress.phase(EPISODE, Phase.GRADE)
    progress.done(trajectory())
    assert phases.seen == [Phase.GRADE]
    assert listener.told == [trajectory()]


def test_a_wait_is_reported_unless_nobody_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    phases = Phases()
    times = iter([10.0, 10.0 + NO_WAIT_S / 2, 20.0, 22.5])
    monkeypatch.setattr(observer, "perf_counter", lambda: next(times))
    for _ in range(2):
        with waiting(phases, Service.ENGINE):
            pass
    assert phases.waits == [2.5]


def test_by_default_nothing_is_observed() -> None:
    nobody = Observer()
    nobody.phase(EPISODE, Phase.START)
    nobody.attempt_ended(EPISODE, None)
