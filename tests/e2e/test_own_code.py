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


def test_what_failed_is_listed_by_what_it_says_wherever_a_job_is_shown(
    job_file: Callable[..., Job], mine: str
) -> None:
    job = job_file(scenarios=["gold", "gold"], grading={"reward": [{"use": "mine:reward"}]})
    done = swe_rollout("run", str(job.path), "--with", mine, check=False)
    page = job.folder / "page.html"

    assert "2 failed: extension: the reward term mine:reward failed: KeyError" in done.stderr
    for words_of in (["status"], ["status", "-o", "wide"], ["stats"]):
        printed = swe_rollout(*words_of, str(job.folder)).stdout
        table = " ".join(printed[printed.index("FAILED") :].split())
        assert "2 extension" in table
        for words in ("mine:reward", "KeyError:", "'passed'", "mine.py", "--rerun-masked"):
            assert words in table
    for verb in ("status", "stats"):
        (group,) = printed_json(swe_rollout(verb, str(job.folder), "-o", "json"))["failure_groups"]
        assert (group["count"], group["owner"]) == (2, "extension")
        assert "mine.py:" in group["message"]
        assert group["example"].count("/") == 2
    swe_rollout("view", str(job.folder), "--output-file", str(page))
    assert page.stat().st_size


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


REWARD = """
def mine(given):
    if given.verdict.resolved:
        return given.patch.lines
    return 0.5
"""
TOOL = '''
from swe_rollout import tool


@tool(name="submit", ends_episode=True)
def hand_in(text: str = "") -> str:
    """Hand in."""
    return str(1 // 0)
'''


def test_a_fixed_reward_grades_what_was_masked_and_keeps_all_else(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text(REWARD)
    grading = {"reward": [{"use": "reward:mine"}]}
    job = job_file(scenarios=["gold", "empty", "gold"], grading=grading)
    command = ["run", str(job.path), "--with", str(reward)]
    done = swe_rollout(*command, check=False)
    assert done.returncode == 1
    assert "run again with --rerun-masked, which takes changed files of --with" in done.stderr
    gold, kept, _ = (read(path) for path in committed(job.folder))
    assert (gold["reward"], kept["reward"]) == (None, 0.5)

    reward.write_text(REWARD.replace("given.patch.lines", "0.25"))
    again = swe_rollout(*command, check=False)
    assert again.returncode == 2
    assert "was begun with other code" in again.stderr
    assert "reward.py changed since this job began" in again.stderr
    assert "sha256" not in again.stderr

    fixed = swe_rollout(*command, "--rerun-masked")
    assert "2 episodes were masked: 2 are graded again, 0 are played again" in fixed.stderr
    assert "3 episodes: 3 already committed (2 graded again), 0 ran now" in fixed.stderr
    records = [read(path) for path in committed(job.folder)]
    assert [record["reward"] for record in records] == [0.25, 0.5, 0.25]
    assert records[1] == kept
    same = ("token_ids", "turns", "verdict", "patch")
    assert [records[0][name] for name in same] == [gold[name] for name in same]
    assert (records[0]["failure"], records[0]["attempt"]) == (None, 2)
    assert len(list((job.folder / "masked").rglob("*.zst"))) == 2
    assert "no episode is masked" in swe_rollout(*command, "--rerun-masked").stderr


def test_a_fixed_tool_plays_what_was_masked(job_file: Callable[..., Job], tmp_path: Path) -> None:
    tools, reward = tmp_path / "my_tools.py", tmp_path / "reward.py"
    tools.write_text(TOOL)
    reward.write_text("import my_tools\n\ndef mine(given):\n    return 1.0\n")
    job = job_file(
        scenarios=["gold"],
        agent={"tools": ["bash", "str_replace_editor", "my_tools:hand_in"]},
        grading={"reward": [{"use": "reward:mine"}]},
    )
    command = ["run", str(job.path), "--with", str(tools), "--with", str(reward)]
    assert swe_rollout(*command, check=False).returncode == 1

    tools.write_text(TOOL.replace("1 // 0", "1"))
    assert "my_tools.py changed" in swe_rollout(*command, check=False).stderr
    fixed = swe_rollout(*command, "--rerun-masked")

    assert "1 episodes were masked: 0 are graded again, 1 are played again" in fixed.stderr
    (record,) = (read(path) for path in committed(job.folder))
    assert (record["reward"], record["stop_reason"]) == (1.0, "submitted")


def test_what_else_changed_is_said_in_words_of_yaml(
    job_file: Callable[..., Job], tmp_path: Path
) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("def mine(given):\n    return 1.0\n")
    terms = [{"use": "reward:mine", "weight": 0.5}]
    job = job_file(scenarios=["gold"], grading={"reward": terms}, suspend=True)
    command = ["run", str(job.path), "--with", str(reward)]
    swe_rollout(*command, check=False)
    reward.write_text("def mine(given):\n    return 2.0\n")
    job_file(scenarios=["gold"], grading={"reward": [{**terms[0], "weight": 0.25}]})
    sets = ["--set", "spec.limits.turns=7", "--set", "spec.sampling.seed=3"]

    done = swe_rollout(*command, "--rerun-masked", *sets, check=False)

    assert done.returncode == 2, done.stderr
    for words in (
        "belongs to a job with another spec",
        "reward.py changed since this job began",
        "spec.grading.reward[0].weight: 0.5 there, 0.25 now",
        "spec.limits.turns: 40 there, 7 now",
        "spec.sampling.seed: unset there, 3 now",
    ):
        assert words in " ".join(done.stderr.split()), done.stderr
