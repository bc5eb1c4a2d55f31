"""The stream of events: several subscribers, whose errors end nothing, and methods for each."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_args

import pytest
from structlog.testing import capture_logs

from swe_rollout import events
from swe_rollout.errors import UsageError
from swe_rollout.events import (
    NO_WAIT_S,
    EngineCall,
    Event,
    Events,
    Execution,
    Phase,
    PhaseBegan,
    SandboxStart,
    Service,
    Span,
    TurnId,
    Waited,
    waiting,
)
from swe_rollout.observer import Observer
from swe_rollout.spec.policy import Sampling
from unit.telemetry.telemetry_parts import EPISODE
from unit.worker.worker_parts import Listener


def test_a_subscriber_that_fails_ends_nothing_and_is_reported_once() -> None:
    class Breaks(Observer):
        def phase(self, episode: object, phase: Phase) -> None:
            raise ValueError(f"no room for {episode} {phase}")

    other = Listener()
    publish, told = Events(Breaks(), None, other), [PhaseBegan(EPISODE, each) for each in Phase]
    with capture_logs() as lines:
        for event in told:
            publish(event)
    assert other.events == told
    assert [(line["event"], line["observer"]) for line in lines] == [("observer_failed", "Breaks")]


def test_what_takes_no_events_is_refused() -> None:
    with pytest.raises(UsageError, match="a dict can't be told of events"):
        Events({})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", get_args(Event))
def test_an_observer_has_a_method_for_each_event(kind: type[Any]) -> None:
    """It takes the event's fields, or the event where a caller measured it."""
    told: list[tuple[object, ...]] = []

    class Remembers(Observer):
        def __getattribute__(self, name: str) -> object:
            return lambda *arguments: told.append((name, *arguments))

    fields = [object() for _ in dataclasses.fields(kind)]
    event = kind(*fields)
    Observer.__call__(Remembers(), event)
    ((name, *arguments),) = told
    is_whole = kind in (EngineCall, Execution, SandboxStart)
    assert arguments == ([event] if is_whole else fields)
    wanted = inspect.signature(getattr(Observer, str(name))).parameters
    assert len(wanted) == 1 + len(arguments)
    getattr(Observer(), str(name))(*arguments)
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, None)


def test_what_nobody_measured_is_none_or_nothing() -> None:
    assert TurnId(EPISODE, 3).branch == 0
    call = EngineCall(TurnId(EPISODE, 0), "p", Sampling(), 1, Span(0, 0))
    counted = call.prompt_tokens, call.cached_tokens, call.sampled_tokens
    assert (call.waited_s, counted, call.finish_reason) == (0, (0, 0, 0), None)
    ran = Execution(EPISODE, "agent", Span(0, 0))
    assert (ran.branch, ran.exit_code, ran.timed_out) == (0, None, False)
    assert not SandboxStart(EPISODE, "agent", Span(0, 0)).is_warm


def test_each_event_has_a_method_of_its_own() -> None:
    methods = {name for name in vars(Observer) if not name.startswith("_")}
    assert len(methods) == len(get_args(Event))


def test_a_wait_is_published_unless_nobody_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    times = iter([10.0, 10.0 + NO_WAIT_S / 2, 20.0, 22.5])
    monkeypatch.setattr(events, "perf_counter", lambda: next(times))
    for _ in range(2):
        with waiting(listener, Service.ENGINE):
            pass
    assert listener.events == [Waited(Service.ENGINE, 2.5)]
