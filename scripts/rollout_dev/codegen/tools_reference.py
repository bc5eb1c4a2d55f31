"""The generated parts of the page of tools: what the policy reads, what a job configures."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, starmap
from typing import Any, cast

import yaml
from pydantic import TypeAdapter

from rollout_dev.report import table
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import Tool, Toolset, ToolSpec
from swe_rollout.agent.tools.names import OTHER_NAMES, TOOL_NAMES, TOOLSET_NAMES
from swe_rollout.spec.agent import ToolUse


def tools_blocks() -> dict[str, Iterable[str]]:
    """Return the keys of an entry, each tool, each toolset, and names of other systems."""
    listed = {home: name for name, home in TOOL_NAMES.items()}
    names = ((f"`{name}`", _meaning(name, listed.get(home))) for name, home in OTHER_NAMES.items())
    return {
        "keys": table(("key", "meaning"), _use_rows()),
        "tools": chain.from_iterable(map(_tool, TOOL_NAMES)),
        "toolsets": chain.from_iterable(starmap(_toolset, TOOLSET_NAMES.items())),
        "names": table(("name", "is"), names),
    }


def _use_rows() -> Iterator[tuple[str, ...]]:
    for name, info in ToolUse.model_fields.items():
        if name not in {"use", "with_"}:
            yield f"`{info.alias or name}`", info.description or ""


def _tool(name: str) -> Iterator[str]:
    (spec,) = toolbox([name]).specs
    yield f"## {name}\n"
    # What the policy reads, word for word.
    yield f"```text\n{textwrap.fill(spec.description, 96, replace_whitespace=False)}\n```\n"
    if arguments := list(_arguments(spec)):
        yield from table(("argument", "type", "meaning"), arguments)
    if configuration := list(_configuration(TOOL_NAMES[name])):
        yield from table(("`with`", "default", "meaning"), configuration)


def _arguments(spec: ToolSpec) -> Iterator[tuple[str, ...]]:
    required = cast("Sequence[str]", spec.arguments.schema.get("required", ()))
    for name, schema in spec.arguments.properties.items():
        label = f"`{name}`" + (" (required)" if name in required else "")
        yield label, _kind(schema), str(schema.get("description", ""))


def _kind(schema: Mapping[str, object]) -> str:
    match schema:
        case {"enum": [*choices]}:
            return "one of " + ", ".join(f"`{each}`" for each in choices)
        case {"type": "array", "items": {"type": str(inner)}}:
            return f"array of {inner}"
        case _:
            return str(schema.get("type", "any"))


def _configuration(home: str) -> Iterator[tuple[str, ...]]:
    made = _imported(home)
    if not inspect.isfunction(made):
        return
    parameters: TypeAdapter[object] = TypeAdapter(cast("Any", made))
    schema = cast("Mapping[str, Mapping[str, object]]", parameters.json_schema())
    for name, field in schema.get("properties", {}).items():
        details = cast("Mapping[str, object]", field)
        default = json.dumps(details.get("default"), ensure_ascii=False).replace('"', "")
        yield f"`{name}`", f"`{default}`", " ".join(str(details.get("description", "")).split())


def _toolset(name: str, home: str) -> Iterator[str]:
    made = _imported(home)
    assert isinstance(made, Toolset)  # noqa: S101 - names lists it as one
    yield f"### {name}\n"
    uses = [_written(each) for each in made.tools]
    text = yaml.safe_dump({"tools": uses}, sort_keys=False, default_flow_style=None, width=100)
    yield f"```yaml\n{text}```\n"


def _written(member: Tool | ToolUse | str) -> object:
    if isinstance(member, ToolUse):
        return {k: v for k, v in json.loads(member.model_dump_json(by_alias=True)).items() if v}
    return member if isinstance(member, str) else member.spec.name


def _meaning(name: str, listed: str | None) -> str:
    (spec,) = toolbox([name]).specs
    if listed:
        return f"`{listed}`"
    base = re.sub(r"^(k8s|r2e)_", "", spec.name)
    return f"`{base}`, which the policy calls `{spec.name}`"


def _imported(home: str) -> object:
    module, _, attribute = home.partition(":")
    return getattr(import_module(module), attribute)
