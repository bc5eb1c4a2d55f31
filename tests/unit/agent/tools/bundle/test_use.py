"""A bundle as a job names it, and the contract of tools."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import ClassVar

import pytest

from swe_rollout.agent.tools import load_tool, toolbox
from swe_rollout.agent.tools.base import Tool
from swe_rollout.agent.tools.bundle.archive import pack, register
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.agent import ToolUse
from swe_rollout.testing.extensions.tools import ToolContract
from unit.agent.tools.bundle.bundle_parts import folder, tool_of

ECHO = "#!/bin/sh\ncat\n"


def test_a_job_names_the_bundle_that_travelled_with_it(tmp_path: Path) -> None:
    data = pack(folder(tmp_path, one=ECHO, two=ECHO))
    use = ToolUse.model_validate(
        {"use": "bundle", "with": {"path": "x", "sha256": hashlib.sha256(data).hexdigest()}}
    )
    with pytest.raises(ExtensionError, match="the bundle x did not travel") as refused:
        toolbox([use])
    assert "swe-rollout run" in refused.value.fix
    register(data)

    assert [spec.name for spec in toolbox(["bash", use]).specs] == ["bash", "one", "two"]
    with pytest.raises(ExtensionError, match="toolset of 2 tools"):
        load_tool(use)
    with pytest.raises(ExtensionError, match="there are two tools named one"):
        toolbox([use, use])


class TestBundleTool(ToolContract):
    arguments: ClassVar = {"text": "x"}
    output = b"/tmp/swe-rollout-tools\n"

    @pytest.fixture
    def tool(self, tmp_path: Path) -> Tool:
        return tool_of(tmp_path, ECHO)
