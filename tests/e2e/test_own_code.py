"""Code of the user's that raises: the output names its file, line and source once, and the cure.

One module holds every kind of extension, and each raises or is misused in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.command import Job, printed_json, swe_rollout
from e2e.records import committed, read

CODE = '''
import sys

from swe_rollout import tool
from swe_rollout.engine.base import EngineInfo, TokenEngine
from swe_rollout.testing.tiny import tokenizer_path


@tool(name="submit")
def hand_in() -> str:
    """Hand in."""
    return next(each for each in () if each)


def reward(given):
    return shares(given, {})

def shares(given, table):
    return table["passed"]

def text(given):
    return "good"

def leaves(given):
    sys.exit(1)

def parser(log):
    raise LookupError("\\x1b[31m" + "no table\\n" * 100_000)

def rows():
    yield from ()
    raise LookupError("no rows")

class Engine(TokenEngine):
    def __init__(self, when):
        self.when = when

    async def info(self):
        if self.when == "info":
            raise KeyError("model")
        return EngineInfo("m", 32768, None, None, tokenizer=str(tokenizer_path()))

    async def generate(self, request):
        return None if self.when == "none" else request.ids

    async def aclose(self):
        pass

async def chat(request):
    return request.text

class Format:
    def parse(self, sampled, *, tools, reasoning):
        return sampled.calls

class Backend:
    async def start(self, request):
        return self.images[request.image]

    def prewarm(self, requests): ...

    async def delete_orphans(self, episodes): ...

    async def aclose(self): ...

async def divides(context):
    await context.begin()
    return len(context.turns) / 0

async def spawns(context):
    plan = await context.spawn("Plan it.")
    await context.begin()
    return await context.finish()

async def empties(context):
    await context.begin([])
    return await context.finish()

async def returns(context):
    await context.begin()
    await context.finish()

async def forgets(context):
    context.begin()
    return await context.finish()

async def plans(context):
    await context.begin()
    child = await context.spawn("Plan it.", tools=["bash"], turns=1)
    await child.finish()
    context.say(f"Your plan: {child.said}")
    return await context.finish()
'''
MCP = {"url": "http://127.0.0.1:9/mcp", "tools": [{"name": "submit", "description": "Hand in."}]}
BROKEN: dict[str, tuple[dict[str, object], list[str]]] = {
    "tool": (
        {"agent": {"tools": ["bash", "mine:hand_in"]}},
        ["the tool submit failed", "a StopIteration left it", "return next(each for each in"],
    ),
    "reward": (
        {"grading": {"reward": [{"use": "mine:reward"}]}},
        ["the reward term mine:reward failed: KeyError: 'passed'", 'return table["passed"]'],
    ),
    "reward-of-no-number": (
        {"grading": {"reward": [{"use": "mine:text"}]}},
        ["expected a finite number; found 'good'", "def text(given):"],
    ),
    "reward-that-exits": (
        {"grading": {"reward": [{"use": "mine:leaves"}]}},
        ["the reward term mine:leaves failed: SystemExit: 1", "sys.exit(1)"],
    ),
    "parser": (
        {"grading": {"logParser": {"use": "mine:parser"}}},
        ["the log parser mine:parser failed: LookupError: no table no table", "raise LookupError("],
    ),
    "engine": (
        {"policy": {"engine": {"use": "mine:Engine", "with": {"when": "asked"}}}},
        ["the engine failed: AttributeError", "request.ids"],
    ),
    "engine-without-an-answer": (
        {"policy": {"engine": {"use": "mine:Engine", "with": {"when": "none"}}}},
        ["the engine returned NoneType instead of a Generation", "class Engine(TokenEngine):"],
    ),
    "chat": (
        {"policy": {"chat": {"use": "mine:chat"}}},
        ["the chat function mine:chat failed: AttributeError", "return request.text"],
    ),
    "sandbox": (
        {"sandbox": {"backend": {"use": "mine:Backend"}}},
        ["starting the sandbox failed: AttributeError", "return self.images[request.image]"],
    ),
    "agent": (
        {"agent": {"use": "mine:divides"}},
        ["the agent program failed: ZeroDivisionError", "return len(context.turns) / 0"],
    ),
    "agent-that-spawns-first": (
        {"agent": {"use": "mine:spawns"}},
        ["begin() was not called and awaited before", "await context.begin(), then turn()"],
    ),
    "agent-with-an-empty-prompt": (
        {"agent": {"use": "mine:empties"}},
        ["an agent begins with a user message", "await context.begin([])"],
    ),
    "agent-without-a-reason": (
        {"agent": {"use": "mine:returns"}},
        ["returned None instead of a StopReason", "end it with `return await context.finish()`"],
    ),
    "agent-that-does-not-wait": (
        {"agent": {"use": "mine:forgets"}},
        ["begin() was not called and awaited before", "return await context.finish()"],
    ),
}
BEFORE: dict[str, tuple[dict[str, object], list[str]]] = {
    "dataset": (
        {"dataset": {"source": {"use": "mine:rows"}}},
        ["the dataset source mine:rows failed", 'raise LookupError("no rows")'],
    ),
    "engine": (
        {"policy": {"engine": {"use": "mine:Engine", "with": {"when": "info"}}}},
        ["the engine mine:Engine failed", "KeyError: 'model'", 'raise KeyError("model")'],
    ),
    "call-format": (
        {"agent": {"toolFormat": "mine:Format"}},
        ["does not fit the format of calls mine:Format", "return sampled.calls"],
    ),
}


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    return str(path)


@pytest.mark.parametrize("name", BROKEN)
def test_a_failure_names_the_user_s_line_once_and_is_in_the_record(
    name: str, job_file: Callable[..., Job], mine: str
) -> None:
    spec, says = BROKEN[name]
    job = job_file(scenarios=["gold", "gold"], **spec)

    done = swe_rollout("run", str(job.path), "--with", mine, check=False)

    assert done.returncode == 1, done.stderr
    for words in says:
        assert words.replace('"', '\\"') in done.stderr or words in done.stderr, done.stderr
    assert done.stderr.count('  File "mine.py", line ') in (1, 2), done.stderr
    assert done.stderr.count("event=episode_failed") == 1
    assert done.stderr.count("\nretried ") == 0
    assert "Traceback" not in done.stderr
    records = committed(job.folder)
    assert records
    for path in records:
        failure = read(path)["failure"]
        assert (failure["boundary"], failure["retryable"]) == ("extension", False)
        assert failure["trace"].startswith('  File "mine.py", line ')
        assert len(failure["trace"]) < 5000
        assert "mine.py:" in failure["message"]


@pytest.mark.parametrize("name", BEFORE)
def test_code_that_fails_before_the_first_episode_is_named(
    name: str, job_file: Callable[..., Job], mine: str
) -> None:
    spec, says = BEFORE[name]

    done = swe_rollout(
        "run", str(job_file(scenarios=["gold"], **spec).path), "--with", mine, check=False
    )

    assert done.returncode in (1, 2, 3), done.stderr
    for words in ("mine.py:", *says):
        assert words in done.stderr
    assert not any(words in done.stderr for words in ("Traceback", "this is a bug"))


def test_a_tool_server_that_is_down_is_one_line_with_its_address(
    job_file: Callable[..., Job], mine: str
) -> None:
    agent = {"tools": ["bash", {"use": "mcp", "with": MCP}]}
    job = job_file(scenarios=["gold", "gold"], agent=agent, retry={"attempts": 2})

    done = swe_rollout("run", str(job.path), "--with", mine, check=False)

    assert done.returncode == 1, done.stderr
    assert done.stderr.count("event=episode_failed") == 1
    assert "the MCP server at http://127.0.0.1:9/mcp can't be used" in done.stderr
    assert "start it, or correct its address and its key" in done.stderr
    assert max(map(len, done.stderr.splitlines())) < 400


def test_a_message_before_the_first_turn_and_after_a_sub_agent_is_read(
    job_file: Callable[..., Job], mine: str
) -> None:
    job = job_file(scenarios=["gold"], agent={"use": "mine:plans"})

    done = swe_rollout("run", str(job.path), "--with", mine, "-o", "json")

    assert printed_json(done)["failures"] == {}
    record = read(committed(job.folder)[0])
    assert record["reward"] == 1.0
    assert "Your plan: " in str(record["prompts"])
