"""The `TodoWrite` and `TodoRead` tools: the policy's own list of what is to be done."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import ToolError, ToolSpec
from swe_rollout.agent.tools.claude_code.call import Call, ClaudeCodeTool, SchemaSpec
from swe_rollout.agent.tools.claude_code.own_folder import own_folder
from swe_rollout.agent.tools.paths import PathKind, look

_FILE: Final = "todos.json"
_MAX_TODOS: Final = 100
_MAX_CHARACTERS: Final = 1000
_MAX_BYTES: Final = 1 << 20
_SIGNS: Final[Mapping[str, str]] = {
    "pending": "[ ]",
    "in_progress": "[~]",
    "completed": "[x]",
}
_SCHEMA: Final = Arguments.of(
    {
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "description": f"The whole list, at most {_MAX_TODOS}; it replaces the last one.",
                "maxItems": _MAX_TODOS,
                "items": {
                    "type": "object",
                    "properties": {
                        "content": {"type": "string", "maxLength": _MAX_CHARACTERS},
                        "status": {"type": "string", "enum": list(_SIGNS)},
                        "activeForm": {"type": "string", "maxLength": _MAX_CHARACTERS},
                        "priority": {"type": "string", "enum": ["high", "medium", "low"]},
                        "id": {"type": "string", "maxLength": _MAX_CHARACTERS},
                    },
                    "required": ["content", "status"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["todos"],
    }
)


class TodoWrite(ClaudeCodeTool):
    """Replaces the list."""

    def __init__(self, name: str = "TodoWrite") -> None:
        """Offer the tool under `name`."""
        super().__init__(
            SchemaSpec(
                name,
                "Write down what is to be done: the whole list, each with its status "
                "(pending, in_progress or completed). It is not part of your work.",
                schema=_SCHEMA,
            )
        )

    async def call(self, call: Call) -> str:
        todos = call.arguments.get("todos")
        data = await off_loop(json.dumps, todos)
        await call.sandbox.write_file(await _path(call), data.encode())
        return await off_loop(_listed, todos)


class TodoRead(ClaudeCodeTool):
    """Shows the list."""

    def __init__(self, name: str = "TodoRead") -> None:
        """Offer the tool under `name`."""
        super().__init__(ToolSpec(name, "Read the list that TodoWrite wrote last."))

    async def call(self, call: Call) -> str:
        info = await look(call.sandbox, await _path(call), timeout_s=call.remaining_s)
        if info.kind is PathKind.MISSING:
            return "the list is empty"
        if info.kind is not PathKind.FILE or info.size_bytes > _MAX_BYTES:
            raise ToolError("the list can't be read; write it again with TodoWrite")
        data = await call.sandbox.read_file(info.path)
        return await off_loop(_read, data[:_MAX_BYTES])


async def _path(call: Call) -> str:
    return posixpath.join(await own_folder(call), _FILE)


def _read(data: bytes) -> str:
    """Read the file, which anything in the sandbox may have changed."""
    try:
        todos = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ToolError("the list is damaged; write it again with TodoWrite") from error
    if _SCHEMA.problems({"todos": todos}):
        raise ToolError("the list is damaged; write it again with TodoWrite")
    return _listed(todos)


def _listed(todos: object) -> str:
    lines = [
        f"{number}. {_SIGNS[each['status']]} {each['content']}"
        for number, each in enumerate(todos if isinstance(todos, list) else [], 1)
    ]
    return "\n".join(lines) or "the list is empty"
