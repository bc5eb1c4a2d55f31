"""Write the reference page of the built-in tools: what the policy reads, what a job configures."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from typing import Final, cast

import yaml
from pydantic import TypeAdapter

from rollout_dev.codegen.reference import table
from swe_rollout.agent.tools import toolbox
from swe_rollout.agent.tools.base import Tool, Toolset, ToolSpec
from swe_rollout.agent.tools.names import OTHER_NAMES, TOOL_NAMES, TOOLSET_NAMES
from swe_rollout.spec.agent import ToolUse

_INTRO: Final = """\
<!-- Made by scripts/generate; change swe_rollout/agent/tools instead. -->
# Tools

What a policy may call. A job lists tools and toolsets in the order in which they are offered;
without a list they are `bash`, `str_replace_editor` and `submit`.
[Your own](../how-to/extend/tools.md) stand in the same list.

```yaml
agent:
  tools:
    - use: bash
      with: {session: true}
    - str_replace_editor
    - use: search
      name: grep
      description: Search the repository.
      timeoutSeconds: 60
      outputBytes: 8192
    - submit
```

Beside `use` and `with`, each entry may say how the tool is offered:
"""
_RULES: Final = """\
- A call whose arguments do not fit the schema never reaches the tool; the policy reads what is
  wrong.
- What goes wrong with a call is its result, `error: …`. A lost sandbox ends the episode as a
  failure, never as a reward of 0.
- A result over its limit keeps its beginning and its end; between them stands how many bytes are
  missing.
- A command that is killed because its time is over says so. Nothing that a call starts can hold up
  the episode.
- What a tool remembers (a session, edits that can be undone) belongs to one episode and ends with
  it.
- Tools need `/bin/sh`, `find`, `grep` and the other programs of busybox in the image, and no more.
- Paths begin in the repository, or with `/`; none is rewritten. Only commands are read as shell.
- `deny` and `deny_patterns` are rules of conduct for the policy, not a wall: each command of a
  script is looked at, as far as it can be told without running it. What must not happen, the
  sandbox prevents.
"""
_SETS: Final = """\
## Toolsets

A toolset is a name for several tools. `timeoutSeconds` and `outputBytes` hold for each of them; to
rename or configure one, list the tools as below.
"""
_OTHERS: Final = """\
## Names elsewhere

Names of tools in other systems are accepted, and mean:
"""


def tools_page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield _INTRO
    yield from table(("key", "meaning"), _use_rows())
    yield _RULES
    for name in TOOL_NAMES:
        yield from _tool(name)
    yield _SETS
    for name, home in TOOLSET_NAMES.items():
        yield from _toolset(name, home)
    yield _OTHERS
    listed = {home: name for name, home in TOOL_NAMES.items()}
    rows = ((f"`{name}`", _meaning(name, listed.get(home))) for name, home in OTHER_NAMES.items())
    yield from table(("name", "is"), rows)


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
    if not inspect.isclass(made) or not is_dataclass(made):
        return
    schema = cast("Mapping[str, Mapping[str, object]]", TypeAdapter(made).json_schema())
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
