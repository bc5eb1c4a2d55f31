"""Logs of a program that uses the package."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.context import Attempt
from swe_rollout.events import Events
from swe_rollout.recorder import Recorder
from swe_rollout.text.logs import processors, shared_context
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance

pytestmark = pytest.mark.threat(point=21)

LOGS = "import structlog; from swe_rollout import RolloutJob; log = structlog.get_logger();"


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_stdout_belongs_to_the_program() -> None:
    done = _run(
        f"{LOGS} RolloutJob; log.warning('engine_lost', url='http://x', text='a\\x1b[2J\\nb')"
    )
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "level=warning event=engine_lost" in line
    assert "\x1b" not in line


def test_a_program_keeps_its_own_configuration() -> None:
    done = _run(
        "import structlog; structlog.configure(processors=[lambda l, m, e: 'mine']);"
        f"{LOGS} RolloutJob; log.warning('engine_lost')"
    )
    assert done.stdout == "mine\n"
    assert done.stderr == ""


@dataclass
class Kept:
    """Keeps the lines that are logged."""

    lines: list[str] = field(default_factory=list)

    def msg(self, message: str) -> None:
        self.lines.append(message)

    debug = info = warning = error = msg

    @property
    def events(self) -> dict[str, dict[str, object]]:
        """The lines, decoded, by event."""
        return {found["event"]: found for found in map(json.loads, self.lines)}


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Log as JSON into a list."""
    before = structlog.get_config() if structlog.is_configured() else None
    found = Kept()
    structlog.configure(
        processors=processors(as_json=True),
        wrapper_class=structlog.make_filtering_bound_logger(0),
        logger_factory=lambda *_: found,
        cache_logger_on_first_use=False,
    )
    yield found
    structlog.reset_defaults()
    if before is not None:
        structlog.configure(**before)


def recorder(episode: EpisodeId, number: int) -> Recorder:
    context: Any = SimpleNamespace(publish=Events())
    task = Instance(instance_id=episode.instance, problem_statement="", image="i")
    return Recorder(Attempt(episode, task, number), context)


ADDRESS = {"job": "demo", "instance": "a__b-1", "sample": 3, "attempt": 2}
EPISODE = EpisodeId("demo", "a__b-1", 3)


def address(line: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in line.items() if key in ADDRESS}


async def test_lines_of_an_episode_have_its_address_also_from_tasks_and_threads(
    kept: Kept,
) -> None:
    log = structlog.get_logger()

    async def work() -> None:
        log.info("task")

    with recorder(EPISODE, 2):
        log.info("own", text="é\x1b[2J\n" + "x" * 9000)
        await asyncio.create_task(work())
        await asyncio.to_thread(log.info, "thread")
        await off_loop(log.info, "turns_thread")
        async with asyncio.TaskGroup() as group:
            group.create_task(work())
    log.info("after")
    assert "after" in kept.events
    for event, line in kept.events.items():
        assert address(line) == ({} if event == "after" else ADDRESS), event
    assert kept.events["own"]["episode"] == "demo/a__b-1/3"
    assert list(kept.events["own"])[:3] == ["timestamp", "level", "event"]
    (own,) = [line for line in kept.lines if '"own"' in line]
    assert own.isascii()
    assert "\n" not in own
    assert len(own) < 5000


async def test_episodes_that_overlap_keep_their_own_addresses(kept: Kept) -> None:
    log, both = structlog.get_logger(), asyncio.Barrier(2)

    async def play(sample: int) -> None:
        with recorder(EpisodeId("demo", "a", sample), 1):
            await both.wait()
            log.info(("first", "second")[sample])

    await asyncio.gather(play(0), play(1))
    assert {event: line["sample"] for event, line in kept.events.items()} == {
        "first": 0,
        "second": 1,
    }


async def test_tasks_that_serve_all_episodes_name_none(kept: Kept) -> None:
    """The monitor of an engine starts with an episode's first call, and outlives the episode."""
    log = structlog.get_logger()
    other = ContextVar("other", default=0)
    other.set(1)

    async def serve() -> int:
        log.info("shared")
        return other.get()

    with recorder(EPISODE, 2):
        assert await asyncio.create_task(serve(), context=shared_context()) == 1
        log.info("own")
    assert address(kept.events["shared"]) == {}
    assert address(kept.events["own"]) == ADDRESS


def test_an_episode_that_a_line_names_itself_has_its_parts(kept: Kept) -> None:
    log = structlog.get_logger()
    log.info("named", episode=str(EPISODE))
    log.info("unlike", episode="no address", sample="mine")
    named, unlike = kept.events["named"], kept.events["unlike"]
    assert (named["job"], named["instance"], named["sample"]) == ("demo", "a__b-1", 3)
    assert unlike["sample"] == "mine"
    assert "job" not in unlike


def test_what_json_does_not_know_is_written_as_python_does(kept: Kept) -> None:
    structlog.get_logger().info("odd", value={1, 2})
    assert kept.events["odd"]["value"] == "{1, 2}"


def test_the_command_writes_json_where_it_is_asked_to() -> None:
    code = (
        "import structlog; from swe_rollout.cli.main import main;"
        "structlog.get_logger(); import sys, atexit;"
        "atexit.register(lambda: structlog.get_logger().warning('last', text='x' * 300));"
        "sys.argv[1:] = ['--log-format', 'json', 'explain', 'spec.samples']; main()"
    )
    done = _run(code)
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["text"] == "x" * 300
