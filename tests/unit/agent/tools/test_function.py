"""`@tool`: what a policy is offered of a function, and what becomes of a call."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from typing import Annotated, Literal

import pytest

from swe_rollout.agent.tools import TOOLS, load_tool, toolbox
from swe_rollout.agent.tools.base import ToolContext, ToolError
from swe_rollout.agent.tools.function import FunctionTool, tool
from swe_rollout.errors import ExtensionFailedError, SandboxError
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.model import Use
from swe_rollout.types.turn import Observation
from unit.agent.agent_parts import Echo

CONTEXT = ToolContext(timeout_s=5.0, output_bytes=300)


@tool
async def grep(  # noqa: PLR0917 - as a user may write it
    pattern: str,
    paths: list[str],
    sandbox: Sandbox,
    context: ToolContext,
    limit: Annotated[int | None, "Lines at most."] = None,
    mode: Literal["fixed", "regex"] = "fixed",
    ratio: float = 0.5,
    lines: list[int] = [],  # noqa: B006 - never changed
    *,
    program: str = "grep",
    flags: tuple[str, ...],
) -> str:
    """Search files
    for a text.

    Not for the policy.

    Args:
        pattern: The text,
            on one line.
        paths (list): Where to look.

    Returns:
        ratio: no parameter.
    """
    words = [program, *flags, mode, str(limit), str(ratio), str(lines), pattern, *paths]
    return (await sandbox.exec(" ".join(words), timeout_s=context.timeout_s)).stdout.decode()


async def run(
    function: Callable[..., object], context: ToolContext = CONTEXT, **arguments: object
) -> Observation:
    return await FunctionTool(function).run(arguments, Echo(), context)


def test_the_policy_sees_name_first_paragraph_and_parameters() -> None:
    assert grep.spec.function()["function"] == {
        "name": "grep",
        "description": "Search files for a text.",
        "parameters": {
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The text, on one line."},
                "paths": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Where to look.",
                },
                "limit": {"type": "integer", "description": "Lines at most."},
                "mode": {"type": "string", "enum": ["fixed", "regex"], "description": ""},
                "ratio": {"type": "number", "description": ""},
                "lines": {"type": "array", "items": {"type": "integer"}, "description": ""},
            },
            "required": ["pattern", "paths"],
        },
    }


async def test_a_tool_gets_arguments_defaults_configuration_and_sandbox() -> None:
    box = toolbox([Use.model_validate({"use": "grep", "with": {"flags": ["-r"]}})])
    bound = load_tool(Use.model_validate({"use": "grep", "with": {"flags": ["-r", "-n"]}}))

    seen = await bound.run({"pattern": "x", "paths": ["a"], "limit": 3}, Echo(), CONTEXT)

    assert seen.text == "grep -r -n fixed 3 0.5 [] x a"
    assert box.specs == (grep.spec,)


def test_a_tool_is_named_by_its_module_in_any_process() -> None:
    assert TOOLS.reference(grep) == f"{grep.__module__}:grep"
    assert getattr(sys.modules[grep.__module__], "grep") is grep  # noqa: B009 - by its name


def test_configuration_that_is_missing_wrong_or_unknown_is_told_before_the_first_call() -> None:
    with pytest.raises(ExtensionError, match="grep needs the parameter flags"):
        toolbox(["grep"])
    with pytest.raises(ExtensionError) as raised:
        TOOLS.load("grep", {"flag": []})
    assert "did you mean flags?" in raised.value.why
    with pytest.raises(ExtensionError) as raised:
        TOOLS.load("grep", {"flags": 3})
    assert "flags: Input should be a valid tuple" in raised.value.why


async def test_a_name_and_the_end_of_the_episode_can_be_declared() -> None:
    @tool(name="hand_in", ends_episode=True)
    def done() -> bytes:
        """Hand in."""
        return b"\xffok\0"

    assert (done.spec.name, done.spec.ends_episode, done.name) == ("hand_in", True, "hand_in")
    seen = await done.run({}, Echo(), CONTEXT)
    assert seen.text == "�ok\\x00"


def test_a_tool_may_have_the_name_of_a_built_in_one_and_does_not_replace_it() -> None:
    @tool
    async def bash(command: str) -> str:
        """Run nothing."""
        return command

    assert bash.spec.name == "bash"
    assert not isinstance(TOOLS.load("bash"), FunctionTool)


def no_docstring(a: str) -> str:
    return a


def untyped(a) -> str:  # type: ignore[no-untyped-def] # noqa: ANN001 - what it is about
    """Do it."""
    return str(a)


def odd(a: dict[str, int]) -> str:
    """Do it."""
    return str(a)


def starred(*a: str) -> str:
    """Do it."""
    return str(a)


def unknown(a: Nowhere) -> str:  # type: ignore[name-defined] # noqa: F821 - what it is about
    """Do it."""
    return str(a)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_docstring, "no docstring"),
        (untyped, "the parameter a has the type none"),
        (odd, r"the type dict\[str, int\]"),
        (starred, r"can't give the parameter \*a"),
        (unknown, "the type Nowhere"),
    ],
)
def test_a_function_that_no_policy_can_call_is_refused_where_it_is_defined(
    function: Callable[..., object], words: str
) -> None:
    with pytest.raises(ExtensionError, match=f"{function.__name__} can't be made") as raised:
        tool(function)
    assert re.search(words, raised.value.why)


async def test_output_is_cut_in_the_middle_and_says_so() -> None:
    async def long() -> Observation:
        """Talk."""
        return Observation("x" * 1000, exit_code=3)

    seen = await run(long)
    assert len(seen.text) <= 300
    assert (seen.truncated, seen.exit_code) == (True, 3)
    assert "bytes omitted" in seen.text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("no such line"), "error: no such line"),
        (ValueError("not a number"), "error: not a number"),
        (FileNotFoundError(2, "No such file"), "error: No such file"),
    ],
)
async def test_errors_that_a_policy_s_input_causes_are_observations(
    error: Exception, text: str
) -> None:
    async def fails() -> str:
        """Fail."""
        raise error

    assert await run(fails) == Observation(text)


@pytest.mark.parametrize(
    "error", [SandboxError("gone"), ConnectionResetError("reset"), TimeoutError()]
)
async def test_errors_of_the_sandbox_pass(error: Exception) -> None:
    async def fails() -> str:
        """Fail."""
        raise error

    with pytest.raises(type(error)):
        await run(fails)


async def test_any_other_exception_is_a_failure_that_names_the_tool() -> None:
    async def fails() -> str:
        """Fail."""
        raise KeyError("lines")

    def three() -> int:
        """Return no text."""
        return 3

    with pytest.raises(ExtensionFailedError, match="the tool fails failed: KeyError: 'lines'"):
        await run(fails)
    with pytest.raises(ExtensionFailedError, match="the tool three returned int"):
        await run(three)


async def test_a_tool_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swe_rollout.agent.tools.function.GRACE_S", 0.0)

    async def sleeps() -> str:
        """Sleep."""
        await asyncio.sleep(60)
        return "rested"

    seen = await run(sleeps, ToolContext(0.05, 300))
    assert seen.timed_out
    assert "stopped after 0.05 s" in seen.text


def lint(path: str, *, linter: str = "ruff") -> str:
    """Check a file."""
    return f"{linter} {path}"


async def later(path: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as users write them
    """Check a file, later."""
    return path


def without_type(path: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Check a file."""
    return path


def made(linter: str = "ruff") -> FunctionTool:
    return FunctionTool(lint).bind({"linter": linter})


def made_without_types(linter):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return made(linter)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("lint", {}, "ruff a.py"),
        ("lint", {"linter": "mypy"}, "mypy a.py"),
        ("later", {}, "a.py"),
        ("without_type", {}, "a.py"),
        ("made", {"linter": "mypy"}, "mypy a.py"),
        ("made_without_types", {"linter": "mypy"}, "mypy a.py"),
    ],
)
async def test_a_plain_function_is_a_tool_unless_it_makes_one(
    name: str, given: dict[str, object], said: str
) -> None:
    found = load_tool(Use(use=f"{__name__}:{name}", with_=given))

    assert (await found.run({"path": "a.py"}, Echo(), CONTEXT)).text == said


def test_a_plain_function_without_a_docstring_says_what_it_lacks() -> None:
    with pytest.raises(ExtensionError, match="the tool run can't be made"):
        load_tool(f"{__name__}:run")
