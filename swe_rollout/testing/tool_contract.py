"""The contract of tools in a real sandbox as tests: subclass `ToolsInSandbox`, provide a sandbox.

    class TestInMySandbox(ToolsInSandbox):
        @pytest.fixture
        async def sandbox(self):
            ...

It applies to every tool in `CASES`; a new tool is a line there, and `cases` can be overridden.
Needs pytest with pytest-asyncio. The image needs a POSIX shell and the tools of busybox. For your
own tool, without a sandbox, use `testing.extensions.tools`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import pytest

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import Toolbox, ToolContext, ToolSpec
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.testing.tool_cases import CASES, ToolCase
from swe_rollout.types.turn import CallStatus, Observation, ToolCall

_TIMEOUT_S: Final = 20.0
_ODD_TIMEOUT_S: Final = 1.0
"""Time limit of odd calls: a search of the whole machine must respond, but need not finish."""
_OUTPUT_BYTES: Final = 16384
_ODD_TEXTS: Final = (
    *("", " ", "\n", "-rf", "--help", "..", "/", "~", "*", "[", "\\", "%s", "{}", "\t\r\n"),
    *("'", '"', "`touch pwned`", "$(touch pwned)", "'; touch pwned; '", "\n touch pwned\n", "a\0b"),
    *("x" * 5000, "d/" * 3000, "/proc/self/mem", "/dev/zero", "a.py/below", "\x1b[31m\x01"),
    *("é漢🙂", "\ud800"),
)  # fmt: skip
_ODD_NUMBERS: Final = (0, -1, 1, 2**31, 2**63 - 1, -(2**63) + 1)


async def _answer(prompt: str, *, has_tools: bool) -> str:
    """Stand in for a sub-agent."""
    return f"{'worked on' if has_tools else 'thought about'} {prompt}"


@dataclass
class Episode:
    """An episode that calls the tool of one case."""

    case: ToolCase
    sandbox: Sandbox
    output_bytes: int = _OUTPUT_BYTES
    timeout_s: float = _TIMEOUT_S
    context: ToolContext = field(init=False)
    tools: Toolbox = field(init=False)

    def __post_init__(self) -> None:
        self.context = ToolContext(self.timeout_s, self.output_bytes, delegate=_answer)
        self.tools = toolbox([self.case.use])

    @property
    def spec(self) -> ToolSpec:
        """The schema of the tool that the case calls."""
        specs = self.tools.specs
        return next(s for s in specs if s.name == self.case.tool) if self.case.tool else specs[0]

    async def call(self, arguments: Mapping[str, object] | None = None) -> Observation:
        """Call the tool as an episode does: invalid arguments never reach it."""
        given = dict(self.case.arguments if arguments is None else arguments)
        if problems := self.spec.problems(given):
            return Observation(problems[0])
        call = ToolCall(CallStatus.OK, "", self.spec.name, given)
        return await self.tools.run(call, self.sandbox, self.context)


class ToolsInSandbox:
    """The contract. Override the fixture `sandbox`, whose folder is emptied before each test."""

    cases: ClassVar[tuple[ToolCase, ...]] = CASES

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrise each test with all cases."""
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", self.cases, ids=str)

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        """A sandbox, which may be the last test's."""
        raise NotImplementedError("override the fixture `sandbox`")

    async def test_a_call_does_what_it_is_for_alone(self, case: ToolCase, sandbox: Sandbox) -> None:
        episode = await _begun(case, sandbox)
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", episode.spec.name)
        json.dumps(episode.spec.function())
        assert episode.spec.problems(dict(case.arguments)) == []

        before = await _files(sandbox)
        seen = await episode.call()
        assert case.says in seen.text
        assert not seen.text.startswith("error")
        for path, data in case.leaves.items():
            assert await sandbox.read_file(path) == data
        assert await _files(sandbox) - before <= {f"./{path}" for path in case.leaves}

    async def test_what_is_shown_is_text_within_its_bound(
        self, case: ToolCase, sandbox: Sandbox
    ) -> None:
        episode = await _begun(case, sandbox, output_bytes=256)
        for path in case.files:
            await sandbox.write_file(path, b"x = 1 # \xff\n" * 20_000)
        seen = await episode.call()
        assert len(seen.text.encode()) <= episode.output_bytes
        assert "\0" not in seen.text

    async def test_odd_arguments_are_answered(self, case: ToolCase, sandbox: Sandbox) -> None:
        episode = await _begun(case, sandbox, timeout_s=_ODD_TIMEOUT_S)
        for arguments in _odd(case, episode.spec):
            seen = await episode.call(arguments)
            assert len(seen.text.encode()) <= _OUTPUT_BYTES
        assert not (await sandbox.exec("ls pwned")).ok
        assert (await sandbox.exec("echo on")).stdout == b"on\n"

    async def test_an_episode_begins_without_what_others_left(
        self, case: ToolCase, sandbox: Sandbox
    ) -> None:
        texts = []
        for _ in range(2):
            episode = await _begun(case, sandbox)
            texts.append((await episode.call()).text)
        assert texts[0] == texts[1]

    async def test_many_episodes_call_one_tool_at_a_time(
        self, case: ToolCase, sandbox: Sandbox
    ) -> None:
        if case.leaves:
            pytest.skip("the calls would write to the same file")
        episode = await _begun(case, sandbox)
        others = [Episode(case, sandbox) for _ in range(4)]
        texts = {each.text for each in await asyncio.gather(*(o.call() for o in others))}
        assert texts == {(await episode.call()).text}


async def _begun(
    case: ToolCase,
    sandbox: Sandbox,
    *,
    output_bytes: int = _OUTPUT_BYTES,
    timeout_s: float = _TIMEOUT_S,
) -> Episode:
    """Return an episode with only the case's files in its folder."""
    await sandbox.exec("find . -mindepth 1 -maxdepth 1 -exec rm -rf {} +")
    for path, data in case.files.items():
        await sandbox.write_file(path, data)
    return Episode(case, sandbox, output_bytes, timeout_s)


async def _files(sandbox: Sandbox) -> set[str]:
    found = await sandbox.exec("find . -type f")
    return set(found.stdout.decode().splitlines())


def _odd(case: ToolCase, spec: ToolSpec) -> Iterator[dict[str, object]]:
    """Yield variants of the case's arguments, each with one unexpected value."""
    for name in spec.arguments.properties:
        types = spec.arguments.types_of(name)
        if "string" in types and name not in case.commands:
            yield from ({**case.arguments, name: text} for text in _ODD_TEXTS)
        if types & {"integer", "number"}:
            yield from ({**case.arguments, name: number} for number in _ODD_NUMBERS)
        if "array" in types:
            odd: tuple[list[object], ...] = ([], [""], ["*", "$(touch pwned)"], [-1], [1, 2, 3])
            yield from ({**case.arguments, name: each} for each in odd)
    yield {}
