"""The contract of tools as tests: subclass `ToolContract` and provide a tool.

    class TestLint(ToolContract):
        arguments = {"path": "calc.py"}
        files = {"calc.py": b"x = 1"}

        @pytest.fixture
        def tool(self):
            return my_tools.lint

Needs pytest with pytest-asyncio in auto mode. The sandbox is in memory: every command prints the
same output, and `files` are its only files.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest

from swe_rollout.agent.tools.base import Tool, ToolContext
from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import MAX_OUTPUT_BYTES, ExecResult, Sandbox

_TIMEOUT_S, _OUTPUT_BYTES = 5.0, 1024
_WRONG: Mapping[str, object] = {"string": 1, "array": "x", "object": 1}
"""A value of a wrong type for each JSON type for which a string is no wrong value."""


def _context() -> ToolContext:
    """Return the context of a call in a new episode."""
    return ToolContext(_TIMEOUT_S, _OUTPUT_BYTES)


@dataclass
class MemorySandbox(Sandbox):
    """A sandbox in memory that records a tool's requests."""

    files: dict[str, bytes]
    output: bytes = b"ok\n"
    lost: bool = False
    silent: bool = False
    """Whether requests never return."""
    timeouts: list[float] = field(default_factory=list)
    uses: int = 0

    @property
    def workdir(self) -> str:
        return "/testbed"

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_s: float = 120.0,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        del command, cwd, env, stdin
        self.timeouts.append(timeout_s)
        await self._used()
        kept = self.output[:max_output]
        return ExecResult(0, kept, b"", stdout_bytes=len(self.output))

    async def read_file(self, path: str, *, max_bytes: int = 64 << 20) -> bytes:
        await self._used()
        data = self.files.get(path.removeprefix("/testbed/"))
        if data is None:
            raise FileNotFoundError(2, "No such file or directory")
        return data[:max_bytes]

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        del mode
        await self._used()
        self.files[path.removeprefix("/testbed/")] = data

    async def end_processes(self) -> None:
        """Do nothing: no command leaves a process."""

    async def close(self) -> None:
        """Do nothing."""

    async def _used(self) -> None:
        self.uses += 1
        if self.lost:
            raise SandboxError("the sandbox is lost")
        if self.silent:
            await asyncio.Event().wait()


class ToolContract:
    """The contract of a tool. Override the fixture `tool`, and `arguments` with a valid call's."""

    arguments: ClassVar[Mapping[str, object]] = {}
    files: ClassVar[Mapping[str, bytes]] = {}
    output: ClassVar[bytes] = b"ok\n"

    @pytest.fixture
    def tool(self) -> Tool:
        """The tool."""
        raise NotImplementedError("override the fixture `tool`")

    @pytest.fixture
    def sandbox(self) -> MemorySandbox:
        """The sandbox of a call."""
        return MemorySandbox(dict(self.files), self.output)

    def test_a_policy_can_read_what_it_is_offered(self, tool: Tool) -> None:
        spec = tool.spec
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", spec.name)
        assert spec.description
        json.dumps(spec.function())
        for name, schema in spec.arguments.properties.items():
            assert schema.get("description"), f"nothing tells the policy what {name} is"

    def test_arguments_are_checked(self, tool: Tool) -> None:
        spec, given = tool.spec, dict(self.arguments)
        assert spec.problems(given) == []
        assert spec.problems({**given, "no_such_argument": 1})
        for parameter in spec.parameters:
            if parameter.required:
                assert spec.problems({k: v for k, v in given.items() if k != parameter.name})
            wrong = _WRONG.get(parameter.type.value.partition(" ")[0], "x")
            assert spec.problems({**given, parameter.name: wrong})

    async def test_a_call_returns_text(self, tool: Tool, sandbox: MemorySandbox) -> None:
        seen = await tool.run(self.arguments, sandbox, _context())
        assert isinstance(seen.text, str)
        assert not seen.truncated

    async def test_text_is_bounded_and_can_be_stored(
        self, tool: Tool, sandbox: MemorySandbox
    ) -> None:
        sandbox.output = b"\xff\0\n" * 100_000
        sandbox.files = dict.fromkeys(sandbox.files, sandbox.output)
        seen = await tool.run(self.arguments, sandbox, _context())
        assert len(seen.text.encode()) <= _OUTPUT_BYTES
        assert "\0" not in seen.text

    async def test_commands_end_with_the_call(self, tool: Tool, sandbox: MemorySandbox) -> None:
        await tool.run(self.arguments, sandbox, _context())
        assert all(0 < timeout_s <= _TIMEOUT_S for timeout_s in sandbox.timeouts), (
            "pass timeout_s=context.timeout_s to sandbox.exec"
        )

    async def test_calls_leave_no_state_behind(self, tool: Tool, sandbox: MemorySandbox) -> None:
        boxes = [replace(sandbox, files=dict(sandbox.files)) for _ in range(8)]
        first = await tool.run(self.arguments, boxes[0], _context())
        others = await asyncio.gather(
            *(tool.run(self.arguments, box, _context()) for box in boxes[1:])
        )
        assert [each.text for each in others] == [first.text] * 7

    async def test_a_lost_sandbox_is_no_observation(
        self, tool: Tool, sandbox: MemorySandbox
    ) -> None:
        sandbox.lost = True
        try:
            await tool.run(self.arguments, sandbox, _context())
        except SandboxError:
            return
        assert not sandbox.uses, "the tool hides a SandboxError, which is a failure of the episode"

    async def test_a_call_can_be_cancelled(self, tool: Tool, sandbox: MemorySandbox) -> None:
        sandbox.silent = True
        task = asyncio.create_task(tool.run(self.arguments, sandbox, _context()))
        await asyncio.sleep(0.05)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        assert done, "the tool goes on after it was cancelled"
        assert task.cancelled() or not sandbox.uses
