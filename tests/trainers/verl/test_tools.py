"""Our tools in verl's tool file: its registry loads them, its tool loop calls them (T3)."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
import yaml

pytest.importorskip("torch", reason="needs scripts/trainers verl")
with warnings.catch_warnings():
    # verl's and ray's own, while they are imported.
    warnings.simplefilter("ignore")
    pytest.importorskip("verl", reason="needs scripts/trainers verl")
    from verl.experimental.agent_loop.tool_agent_loop import AgentData, ToolAgentLoop
    from verl.experimental.agent_loop.tool_parser import FunctionCall
    from verl.tools.tool_registry import load_all_tools

from collections.abc import AsyncIterator
from pathlib import Path

from swe_rollout.errors import UsageError
from swe_rollout.launcher.sync import let_go
from unit.integrations.rollouts import sandboxes, write_job
from waits import until

pytestmark = [pytest.mark.trainers, pytest.mark.filterwarnings("default")]
KWARGS = {"create_kwargs": {"instance_id": "one"}}


@pytest.fixture
async def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    monkeypatch.setenv("SWE_ROLLOUT_JOB", str(write_job(tmp_path)))
    name = "swe_rollout.integrations.verl_tools.SweRolloutTool"
    listed = [
        {"class_name": name, "config": {"type": "native", "tool": tool}}
        for tool in ("bash", "str_replace_editor")
    ]
    file = tmp_path / "tools.yaml"
    file.write_text(yaml.safe_dump({"tools": listed}))
    yield {tool.name: tool for tool in load_all_tools(str(file), None)}
    await let_go()


def trajectory(tools: dict[str, Any]) -> Any:
    data = AgentData(
        messages=[], image_data=None, video_data=None, audio_data=None, mm_processor_kwargs={},
        metrics={}, request_id="r1", tools_kwargs=dict.fromkeys(tools, KWARGS),
    )  # fmt: skip
    data._active_tools = tools
    return data


async def call(tools: dict[str, Any], data: Any, name: str, arguments: str) -> str:
    loop = object.__new__(ToolAgentLoop)
    loop.tools = tools
    loop.max_tool_response_length = 10_000
    loop.tool_response_truncate_side = "middle"
    made = FunctionCall(name=name, arguments=arguments)
    response, reward, _ = await loop._call_tool(made, data.tools_kwargs, data)
    assert reward == 0.0
    return str(response.text)


async def test_verl_reads_our_schemas_t3(tools: dict[str, Any]) -> None:
    assert list(tools) == ["bash", "str_replace_editor"]
    function = tools["bash"].get_openai_tool_schema().function
    assert function.parameters.required == ["command"]
    assert function.parameters.properties["command"].type == "string"


async def test_a_trajectory_has_one_sandbox_until_verl_drops_it_t3(tools: dict[str, Any]) -> None:
    data = trajectory(tools)
    assert "ls" in await call(tools, data, "bash", '{"command": "ls"}')
    assert "pwd" in await call(tools, data, "bash", '{"command": "pwd"}')
    await call(tools, data, "str_replace_editor", '{"command": "view", "path": "/testbed/a"}')
    assert (sandboxes().started, sandboxes().open) == (1, 1)
    assert sandboxes().commands[:2] == ["ls", "pwd"]

    del data
    gc.collect()
    await until(lambda: sandboxes().open == 0)


async def test_wrong_arguments_are_answered_and_a_missing_task_is_explained_t3(
    tools: dict[str, Any],
) -> None:
    data = trajectory(tools)
    assert "error: " in await call(tools, data, "bash", "{}")
    with pytest.raises(UsageError, match="was given no task"):
        await tools["bash"].create()
    sandboxless, _ = await tools["bash"].create(instance_id="mine", create_kwargs={
        "instance_id": "two"})  # fmt: skip
    response, _, told = await tools["bash"].execute(sandboxless, {"command": "ls"})
    assert "ls" in response.text
    assert told["ok"]
    await tools["bash"].release(sandboxless)
    await until(lambda: sandboxes().open == 0)
