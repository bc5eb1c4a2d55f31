"""What a job says about an MCP server."""

from __future__ import annotations

import pytest

from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.mcp.tool import read_options
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.agent import ToolUse
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.template import template

PIN = {"name": "a.b", "description": "Does a.", "inputSchema": {"type": "object"}}


def use(**parameters: object) -> ToolUse:
    return ToolUse.model_validate({"use": "mcp", "with": parameters})


def test_pinned_tools_are_offered_in_order_under_their_prefix() -> None:
    tools = [PIN, {"name": "c", "description": "Does c."}]

    specs = toolbox(["bash", use(command=["server"], prefix="git_", tools=tools)]).specs

    assert [spec.name for spec in specs] == ["bash", "git_a_b", "git_c"]


def test_two_servers_may_not_offer_one_name() -> None:
    one = use(command=["server"], tools=[PIN])

    with pytest.raises(ExtensionError, match="two tools named a_b"):
        toolbox([one, use(url="http://tools:8000/mcp", tools=[PIN])])
    assert toolbox([one, use(url="http://tools:8000/mcp", tools=[PIN], prefix="x")])


def test_tools_that_are_not_pinned_are_no_surprise_in_the_prompt() -> None:
    with pytest.raises(ExtensionError, match="does not list the tools") as refused:
        toolbox([use(command=["server"])])
    assert "swe-rollout mcp-tools job.yaml" in refused.value.fix


def test_pinned_tools_are_part_of_the_job_s_digest() -> None:
    digests = set()
    for description in ("Does a.", "Does b."):
        job = parse_job(template(), source="job")
        tools = (use(command=["s"], tools=[{**PIN, "description": description}]),)
        agent = job.spec.agent.model_copy(update={"tools": tools})
        spec = job.spec.model_copy(update={"agent": agent})
        digests.add(job.model_copy(update={"spec": spec}).digest)

    assert len(digests) == 2


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({}, "either command or url"),
        ({"command": ["a"], "url": "http://a"}, "either command or url"),
        ({"command": ["a\0"]}, "NUL"),
        ({"command": ["a"], "apiKeyEnv": "KEY"}, "a sandbox gets no secrets"),
        ({"url": "http://a", "env": {"A": "b"}}, "env is for command"),
        ({"url": "ftp://a"}, "http"),
        ({"url": "http://169.254.169.254/mcp"}, "metadata"),
        ({"url": "http://user:pass@a/mcp"}, "without credentials"),
        ({"url": "http://a", "headersEnv": {"X: y": "KEY"}}, "headersEnv"),
        ({"comand": ["a"]}, "comand"),
        ({"command": ["a"], "tools": [PIN, PIN]}, "listed twice"),
        ({"command": ["a"], "tools": [{**PIN, "name": "a b"}]}, "no tool's name"),
        ({"command": ["a"], "tools": [{**PIN, "description": ""}]}, "describe it"),
        (
            {
                "command": ["a"],
                "tools": [{**PIN, "inputSchema": {"properties": {"x": {"pattern": "x"}}}}],
            },
            "pattern",
        ),
    ],
)
def test_what_can_t_be_used_is_refused_with_the_reason(
    parameters: dict[str, object], why: str
) -> None:
    with pytest.raises(ExtensionError) as refused:
        read_options(parameters)
    assert why in refused.value.why
    assert "pass@" not in str(refused.value)
