"""Convert the tools that a server lists into the form in which a job pins them.

A server's schema may contain more than a job's: local references are resolved, and keywords that
are not checked here are dropped, since the server checks them itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mcp_types import Tool

from swe_rollout.agent.tools.declared import KEYWORDS, MAX_DEPTH
from swe_rollout.agent.tools.mcp.options import PinnedTool

_MAX_NODES: Final = 2000
"""Maximum size of a resolved schema: references can make a small one huge."""


def pinned(tools: Iterable[Tool], prefix: str) -> tuple[list[dict[str, object]], list[str]]:
    """Return the tools in the form of a job's `tools`, and why the others can't be offered."""
    found: list[dict[str, object]] = []
    problems: list[str] = []
    for tool in tools:
        try:
            schema = _Flat(tool.input_schema).schema()
            described = (tool.description or tool.title or "").strip() or tool.name
            pin = PinnedTool(name=tool.name, description=described, input_schema=schema)
            pin.spec(prefix)
        except ValueError as error:
            problems.append(f"{tool.name[:80]}: {str(error).partition(chr(10))[0]}")
            continue
        found.append({"name": tool.name, "description": described, "inputSchema": pin.input_schema})
    return found, problems


class _Flat:
    """A schema whose references are being resolved."""

    def __init__(self, schema: Mapping[str, object]) -> None:
        self._root = schema
        self._nodes = 0

    def schema(self) -> dict[str, object]:
        """Return the schema with only allowed keywords. Raises ValueError if it is infinite."""
        return self._of(self._root, 0)

    def _of(self, schema: Mapping[str, object], depth: int) -> dict[str, object]:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > _MAX_NODES:
            raise ValueError("its schema refers to itself, or is too large")
        if isinstance(reference := schema.get("$ref"), str):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            return self._of({**self._target(reference), **beside}, depth + 1)
        return {
            key: self._value(key, value, depth) for key, value in schema.items() if key in KEYWORDS
        }

    def _value(self, keyword: str, value: object, depth: int) -> object:
        match keyword, value:
            case "properties", dict():
                return {
                    str(name): self._of(each, depth + 1) if isinstance(each, dict) else {}
                    for name, each in value.items()
                }
            case "items" | "additionalProperties", dict():
                return self._of(value, depth + 1)
            case "anyOf" | "oneOf" | "allOf", list():
                return [self._of(each, depth + 1) for each in value if isinstance(each, dict)]
            case _:
                return value

    def _target(self, reference: str) -> Mapping[str, object]:
        found: object = self._root
        if reference == "#":
            return self._root
        if not reference.startswith("#/"):
            raise ValueError("its schema refers to another document")
        for name in reference[2:].split("/"):
            key = name.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise ValueError(  # noqa: TRY004 - of the value that the server gave
                f"its schema refers to {reference[:80]}, which is not there"
            )
        return found
