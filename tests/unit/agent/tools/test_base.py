"""How tools are offered: in order, under other names and bounds, in toolsets (T5, R4)."""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.agent.tools import base, load_tool, toolbox
from swe_rollout.agent.tools.base import (
    Tool,
    Toolbox,
    ToolContext,
    ToolError,
    Toolset,
    ToolSpec,
    cut_middle,
)
from swe_rollout.errors import ExtensionFailedError, UsageError
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.testing.extensions.tools import MemorySandbox
from swe_rollout.types.turn import CallStatus, Observation, ToolCall


class Bounds(Tool):
    """Says which bounds it was given."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("bounds", "Say them.")

    async def run(self, arguments: object, sandbox: Sandbox, context: ToolContext) -> Observation:
        del arguments, sandbox
        return Observation(f"{context.timeout_s:g} s, {context.output_bytes} bytes")


class Loud(Bounds):
    """Returns 30,000 bytes, and cuts nothing itself."""

    async def run(self, arguments: object, sandbox: Sandbox, context: ToolContext) -> Observation:
        del arguments, sandbox, context
        return Observation("<" + "\0" * 7_499 + ">")


class Gives(Bounds):
    """Returns what it was made with, or raises it."""

    def __init__(self, given: object) -> None:
        self.given = given

    async def run(self, arguments: object, sandbox: Sandbox, context: ToolContext) -> Observation:
        del arguments, sandbox, context
        if isinstance(self.given, Exception):
            raise self.given
        return cast("Observation", self.given)


class Endless(Bounds):
    """Waits for ever."""

    async def run(self, arguments: object, sandbox: Sandbox, context: ToolContext) -> Observation:
        del arguments, sandbox, context
        await asyncio.Event().wait()
        raise AssertionError


BOUNDS = Bounds()
ENDLESS_TOOL = Endless()
LOUD = Loud()
LOUDER = Toolset((ToolUse(use=f"{__name__}:LOUD", output_bytes=20_000),))
PAIR = Toolset((BOUNDS, "submit", ToolUse(use="bash", name="run")))
ENDLESS = Toolset((f"{__name__}:BOUNDS", f"{__name__}:ENDLESS"))
HERE = f"{__name__}:"


async def seen(use: ToolUse, *, remaining_s: float = math.inf) -> str:
    box = toolbox([use])
    call = ToolCall(CallStatus.OK, "", box.specs[0].name, {})
    context = ToolContext(120, 16384, remaining_s=remaining_s)
    return (await box.run(call, MemorySandbox({}), context)).text


def test_a_tool_is_offered_under_the_name_and_description_of_the_job() -> None:
    use = ToolUse.model_validate(
        {"use": "bash", "name": "execute_bash", "description": "Run a command."}
    )
    spec = toolbox([use]).specs[0]

    assert (spec.name, spec.description) == ("execute_bash", "Run a command.")
    assert spec.parameters == load_tool("bash").spec.parameters
    assert toolbox(["bash", use]).specs[1] == spec


def test_another_name_keeps_the_end_of_the_episode() -> None:
    box = toolbox([ToolUse(use="submit", name="hand_in")])

    assert box.ends_episode(ToolCall(CallStatus.OK, "", "hand_in"))


async def test_bounds_of_a_tool_replace_those_of_the_job_but_never_outlast_the_episode() -> None:
    use = HERE + "BOUNDS"

    assert await seen(ToolUse(use=use)) == "120 s, 16384 bytes"
    assert await seen(ToolUse(use=use, timeout_seconds=600)) == "600 s, 16384 bytes"
    assert await seen(ToolUse(use=use, timeout_seconds=5, output_bytes=300)) == "5 s, 300 bytes"
    assert await seen(ToolUse(use=use, timeout_seconds=600), remaining_s=7) == "7 s, 16384 bytes"


@pytest.mark.parametrize(
    ("use", "limit"),
    [
        (ToolUse(use=HERE + "LOUD"), 16_384),
        (ToolUse(use=HERE + "LOUD", output_bytes=300), 300),
        (ToolUse(use=HERE + "LOUD", output_bytes=20_000), 20_000),
        (ToolUse(use=HERE + "LOUDER", timeout_seconds=9), 20_000),
    ],
)
async def test_a_result_over_its_limit_is_cut_whoever_returns_it(use: ToolUse, limit: int) -> None:
    shown = await seen(use)

    assert limit - 64 < len(shown.encode()) <= limit
    assert re.fullmatch(r"<.*bytes omitted.*>", shown, re.DOTALL)
    assert "\0" not in shown


async def read_of(value: object) -> str:
    call, context = ToolCall(CallStatus.OK, "", "bounds", {}), ToolContext(1, 300)
    return (await Toolbox([Gives(value)]).run(call, MemorySandbox({}), context)).text


async def test_a_tool_error_of_any_tool_is_read_by_the_policy() -> None:
    assert await read_of(ToolError("no such line")) == "error: no such line"


async def test_a_class_that_does_not_keep_to_its_time_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(base, "GRACE_S", 0.0)
    use = ToolUse(use=f"{HERE}ENDLESS_TOOL", timeout_seconds=0.01)
    async with asyncio.timeout(30):
        assert (await seen(use)).startswith("stopped after 0.01 s")


@pytest.mark.parametrize("value", [None, "text", Observation(cast("str", b"text"))])
async def test_a_tool_that_returns_no_observation_is_named(value: object) -> None:
    with pytest.raises(ExtensionFailedError, match="the tool bounds returned") as caught:
        await read_of(value)
    assert "class Gives(Bounds)" in caught.value.why


def test_a_toolset_is_its_tools_in_order_with_its_bounds() -> None:
    box = toolbox([ToolUse(use=HERE + "PAIR", timeout_seconds=9), "bash"])

    assert [spec.name for spec in box.specs] == ["bounds", "submit", "run", "bash"]


async def test_the_bounds_of_a_toolset_are_those_of_each_tool() -> None:
    box = toolbox([ToolUse(use=HERE + "PAIR", timeout_seconds=9)])
    call = ToolCall(CallStatus.OK, "", "bounds", {})

    observed = await box.run(call, MemorySandbox({}), ToolContext(120, 300))
    assert observed.text == "9 s, 300 bytes"


def test_a_toolset_has_no_single_name() -> None:
    with pytest.raises(UsageError, match="one name or description for all of its tools"):
        toolbox([ToolUse(use=HERE + "PAIR", name="pair")])
    with pytest.raises(ExtensionError, match="toolset of 3 tools"):
        load_tool(HERE + "PAIR")


def test_a_toolset_that_holds_itself_is_refused() -> None:
    with pytest.raises(ExtensionError, match="holds itself"):
        toolbox([HERE + "ENDLESS"])


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "é", "a.b"])
def test_a_name_that_call_formats_can_not_carry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        ToolUse.model_validate({"use": "bash", "name": name})


def test_a_use_is_stored_as_short_as_it_is_written() -> None:
    """A tool without overrides keeps the digest of jobs that are stored already."""
    uses = (ToolUse(use="bash"), ToolUse(use="bash", timeout_seconds=5))

    assert [json.loads(use.model_dump_json(by_alias=True)) for use in uses] == [
        "bash",
        {"use": "bash", "with": {}, "timeoutSeconds": 5.0},
    ]


def test_tools_are_offered_in_the_order_asked_for_in_openai_function_form() -> None:
    offered = [spec.function() for spec in toolbox(["submit", "bash"]).specs]

    assert offered[1] == {
        "type": "function",
        "function": {
            "name": "bash",
            "description": offered[1]["function"]["description"],  # type: ignore[index]
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {
                        "type": "string",
                        "description": "The script; may have several lines.",
                    }
                },
                "required": ["command"],
            },
        },
    }
    assert offered[0]["function"]["name"] == "submit"  # type: ignore[index]


def test_a_tool_nobody_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError) as raised:
        toolbox(["bash", "python"])
    assert "bash" in raised.value.why
    assert "str_replace_editor, submit" in raised.value.why


def test_two_tools_of_one_name_are_refused() -> None:
    cases: list[list[str | ToolUse]] = [
        ["bash", "submit", "bash"],
        ["bash", ToolUse(use="execute_bash", name="bash")],
    ]
    for tools in cases:
        with pytest.raises(UsageError, match="two tools named bash"):
            toolbox(tools)


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (ToolUse(use="bash", with_={"denied": ["git"]}), "did you mean deny?"),
        (ToolUse(use="calculator", with_={"precision": 99}), "less than or equal to 17"),
        (ToolUse(use="serch"), "did you mean search?"),
    ],
)
def test_what_can_not_be_made_is_refused_with_what_could(use: ToolUse, why: str) -> None:
    with pytest.raises(ExtensionError) as raised:
        toolbox([use])
    assert why in f"{raised.value} {raised.value.why} {raised.value.fix}"


@given(st.text(max_size=300), st.integers(0, 200))
def test_a_cut_text_fits_and_says_exactly_how_much_is_gone(text: str, limit: int) -> None:
    text = text.encode(errors="ignore").decode()
    cut = cut_middle(text, limit)

    size = len(text.encode())
    assert len(cut.encode()) <= limit or cut == text
    assert (cut == text) == (size <= limit)
    if "\n[... " in cut and cut != text:
        head, _, rest = cut.partition("\n[... ")
        omitted, _, tail = rest.partition(" bytes omitted ...]\n")
        assert len(head.encode()) + int(omitted) + len(tail.encode()) == size
        assert text.startswith(head)
        assert text.endswith(tail)
