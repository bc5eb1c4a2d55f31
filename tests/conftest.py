"""Keep tests apart: no test sees another's secrets, environment, modules, signals or order."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from swe_rollout.text import redaction

# A slow machine is no failure of a test. Examples are the same on each: `make fuzz` draws others.
settings.register_profile(
    "patient", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

_ROOT = Path(__file__).parents[1]
_KEPT = (
    sys.prefix,
    sys.base_prefix,
    *(str(_ROOT / name) for name in ("swe_rollout", "operator", "scripts", "tests")),
)
"""Where modules come from that every test may use."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in any order"
    )


def pytest_configure() -> None:
    """Undo what a shell does to the jobs that it starts in the background: they ignore SIGINT."""
    gc.disable()  # until all is collected
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGTERM, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle files and the tests within each; a file's fixtures are still made once."""
    seed: int | None = config.getoption("--shuffle")
    if seed is None:
        return
    order = random.Random(seed)
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    order.shuffle(files)
    for tests in files:
        order.shuffle(tests)
    items[:] = [item for tests in files for item in tests]


def pytest_collection_finish() -> None:
    """Keep the garbage collector from all modules and tests: half a second for each look."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Undo what a program that ran in this process set for everybody's logs."""
    was_configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if was_configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if (session := sys.modules.get("swe_rollout.worker.session")) is not None:
        # It would collect garbage among what all tests hold, each time that a session is opened.
        monkeypatch.setattr(session, "settled_heap", nullcontext)
    monkeypatch.setattr(redaction, "_ALL", redaction.Redactor())
    monkeypatch.setattr(redaction, "_IN_USE", redaction.Redactor())
    limit, modules = sys.getrecursionlimit(), {*sys.modules}
    environment = {**os.environ}
    yield
    sys.setrecursionlimit(limit)
    for name in sys.modules.keys() - modules:
        # Extensions of users, from examples and temporary folders.
        if (path := getattr(sys.modules[name], "__file__", None)) and not path.startswith(_KEPT):
            del sys.modules[name]
    for name in environment.keys() | os.environ.keys():
        if name != "PYTEST_CURRENT_TEST" and environment.get(name) != os.environ.get(name):
            os.environ.pop(name, None)
            if name in environment:
                os.environ[name] = environment[name]
