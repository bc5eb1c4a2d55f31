"""The verb `mcp-tools`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

pytest.importorskip("mcp", reason="pip install 'swe-rollout[mcp]' to run these tests")

from swe_rollout.agent.tools import toolbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.template import template
from unit.agent.tools.mcp.mcp_parts import http_server
from unit.cli.cli_parts import Cli


def job_file(folder: Path, *tools: object) -> str:
    job = parse_job(template(), source="job").to_yaml_dict()
    spec = job["spec"]
    assert isinstance(spec, dict)
    spec["agent"]["tools"] = ["bash", *tools]
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))
    return str(path)


def test_it_prints_what_goes_into_the_job_file(tmp_path: Path, cli: Cli) -> None:
    with http_server() as url:
        use = {"use": "mcp", "with": {"url": url, "prefix": "words_"}}
        printed = cli("mcp-tools", job_file(tmp_path, use)).out

    bash, found = yaml.safe_load(printed)["tools"]
    assert bash == "bash"
    assert found["with"]["url"] == url
    box = toolbox([ToolUse.model_validate(found)])
    assert [spec.name for spec in box.specs][:2] == ["words_count", "words_write"]
    assert box.specs[0].problems({"path": 1}) == ["'path' must be a string"]


@pytest.mark.parametrize(
    ("tool", "code", "said"),
    [
        ("submit", 2, "the job names no MCP server"),
        ({"use": "mcp", "with": {"uri": "x"}}, 2, "uri: Extra inputs"),
        (
            {"use": "mcp", "with": {"url": "http://127.0.0.1:9/mcp"}},
            4,
            "http://127.0.0.1:9/mcp can't be used",
        ),
    ],
)
def test_what_has_no_tools_to_list_is_refused(
    tool: object, code: int, said: str, tmp_path: Path, cli: Cli
) -> None:
    done = cli("mcp-tools", job_file(tmp_path, tool), code=code)
    assert done.out == ""
    assert said in done.err
