"""What the policy reads about an editor: what it can do, and nothing else."""

from __future__ import annotations

import pytest

from swe_rollout.agent.tools import load_tool
from swe_rollout.errors import UsageError
from swe_rollout.spec.agent import ToolUse


def test_an_editor_can_be_made_to_read_alone() -> None:
    """Row L7."""
    reader = load_tool(
        ToolUse(use="file_editor", with_={"commands": ["view"], "concise": False})
    ).spec

    assert reader.description == (
        "View files.\n* view: a file with line numbers (all, or the lines of view_range), or a "
        "directory two levels deep."
    )
    assert list(reader.arguments.properties) == ["command", "path", "view_range"]
    assert reader.problems({"command": "create", "path": "f"}) == ["'command' must be one of view"]


def test_each_editor_offers_what_it_can_do() -> None:
    """Row WT8: nothing is offered that does not work here."""
    plain, full = load_tool("str_replace_editor").spec, load_tool("file_editor").spec

    assert (plain.name, full.name) == ("str_replace_editor", "file_editor")
    assert "undo" not in str(plain.function())
    assert "concise" not in str(plain.function())
    assert full.problems({"command": "undo_edit", "path": "f"}) == []


@pytest.mark.parametrize("commands", [[], ["delete"], "view"])
def test_commands_that_do_not_exist_are_refused(commands: object) -> None:
    with pytest.raises(UsageError, match="str_replace_editor can't be made"):
        load_tool(ToolUse(use="str_replace_editor", with_={"commands": commands}))
