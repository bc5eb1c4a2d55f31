"""The built-in tools keep the contract that tools of users are held to."""

from __future__ import annotations

from typing import ClassVar

import pytest

from swe_rollout.agent.tools import load_tool
from swe_rollout.agent.tools.base import Tool
from swe_rollout.spec.agent import ToolUse
from swe_rollout.testing.extensions.tools import ToolContract


class TestBash(ToolContract):
    arguments: ClassVar = {"command": "ls"}

    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("bash")


class TestStrReplaceEditor(ToolContract):
    arguments: ClassVar = {"command": "create", "path": "a.py", "file_text": "x = 1\n"}
    output = b"missing\n"

    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("str_replace_editor")


class TestSubmit(ToolContract):
    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("submit")


class TestFileEditor(TestStrReplaceEditor):
    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("file_editor")


class TestSession(TestBash):
    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool(ToolUse(use="bash", with_={"session": True}))


class TestCalculator(ToolContract):
    arguments: ClassVar = {"expression": "1 + 1"}

    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("calculator")


class TestThink(ToolContract):
    arguments: ClassVar = {"thought": "x"}

    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("think")


class TestFinish(ToolContract):
    arguments: ClassVar = {"answer": "x"}

    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("finish")


class TestR2EBash(ToolContract):
    arguments: ClassVar = {"cmd": "ls"}

    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("r2e_bash_executor")


class TestSearch(ToolContract):
    arguments: ClassVar = {"command": "search_files", "pattern": "x", "path": "."}
    output = b"directory\n"

    @pytest.fixture
    def tool(self) -> Tool:
        return load_tool("search")
