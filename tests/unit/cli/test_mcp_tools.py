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
from unit.cli.cli_parts import run_cli


def job_file(folder: Path, *tools: object) -> str:
    job = parse_job(template(), source="job").to_yaml_dict()
    spec = job["spec"]
    assert isinstance(spec, dict)
    spec["agent"]["tools"] = ["bash", *tools]
    path = folder / "job.yaml"
    path.write_text(json.dumps(job))
    return str(path)


def test_it_prints_what_goes_into_the_job_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with http_server() as url:
        use = {"use": "mcp", "with": {"url": url, "prefix": "words_"}}
        code = run_cli(monkeypatch, "mcp-tools", job_file(tmp_path, use))

    assert code == 0
    bash, found = yaml.safe_load(capsys.readouterr().out)["tools"]
    assert bash == "bash"
    assert found["with"]["url"] == url
    box = toolbox([ToolUse.model_validate(found)])
    assert [spec.name for spec in box.specs][:2] == ["words_count", "words_write"]
    assert box.specs[0].problems({"path": 1}) == ["'path' must be a string"]


def test_a_job_without_a_server_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(monkeypatch, "mcp-tools", job_file(tmp_path, "submit")) == 2
    assert "the job names no MCP server" in capsys.readouterr().err
    wrong = {"use": "mcp", "with": {"uri": "x"}}
    assert run_cli(monkeypatch, "mcp-tools", job_file(tmp_path, wrong)) == 2
    assert "uri: Extra inputs" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use = {"use": "mcp", "with": {"url": "http://127.0.0.1:9/mcp"}}

    assert run_cli(monkeypatch, "mcp-tools", job_file(tmp_path, use)) == 4

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "http://127.0.0.1:9/mcp can't be used" in printed.err
