"""The reference of tools is what the code says, and what it shows loads; options take no secret."""

from __future__ import annotations

import re

import yaml

from checkout import ROOT
from rollout_dev.codegen.reference import commands, variables
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.names import TOOLSET_NAMES
from swe_rollout.cli.main import build_command
from swe_rollout.spec.agent import ToolUse

PAGE = (ROOT / "docs" / "reference" / "tools.md").read_text("utf-8")


def listed(text: str) -> list[ToolUse]:
    read = yaml.safe_load(text)
    return [ToolUse.model_validate(each) for each in read.get("agent", read)["tools"]]


def test_what_a_set_stands_for_is_the_same_tools() -> None:
    sets = re.findall(r"^### (\w+)\n\n```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

    assert [name for name, _ in sets] == list(TOOLSET_NAMES)
    for name, text in sets:
        assert toolbox(listed(text)).specs == toolbox([name]).specs


def test_the_example_loads() -> None:
    first = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]

    box = toolbox(listed(first))
    assert [spec.name for spec in box.specs] == ["bash", "str_replace_editor", "grep", "submit"]


def test_no_option_takes_a_secret() -> None:
    secret = re.compile(r"--(.*-)?(api-key|key|token|password|secret|credentials)\b(?!-env)")
    for path, each in commands(build_command()):
        for option in variables(path, each):
            assert not secret.search(option), (path, option)
