"""Tools described by data, not code: a name, a description and a JSON schema of the arguments.

The data come from outside: from the manifest of a bundle, or from an MCP server. So their size is
bounded, and a schema may only have keywords that can be checked in time linear in a call. The
description becomes part of the prompt, whose control tokens are real: `require_no_controls` refuses
text that contains one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.extension import ExtensionError

MAX_DESCRIPTION_CHARS: Final = 16_384
MAX_SCHEMA_BYTES: Final = 65_536
MAX_DEPTH: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_ONE: Final = frozenset({"items", "additionalProperties"})
_SEVERAL: Final = frozenset({"anyOf", "oneOf", "allOf"})
_PLAIN: Final = frozenset(
    {
        *("type", "enum", "const", "required", "title", "description", "default", "examples"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
        *("minItems", "maxItems", "minProperties", "maxProperties", "format", "deprecated"),
    }
)
KEYWORDS: Final = _ONE | _SEVERAL | _PLAIN | {"properties"}
"""Keywords that a schema may have. Others may point anywhere (`$ref`), or take forever on some
calls (`pattern`, `uniqueItems`)."""


@dataclass(frozen=True, slots=True)
class DeclaredSpec(ToolSpec):
    """A tool as the policy sees it, described by data from outside."""


def declared_spec(
    name: str, description: str, schema: Mapping[str, object], *, ends_episode: bool = False
) -> DeclaredSpec:
    """Check the data of a tool. Raises ValueError for a tool that no policy should be offered."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no tool's name: up to 64 letters, digits, _ and -")
    if not description.strip():
        raise ValueError(f"nothing tells the policy what {name} does: describe it")
    if len(description) > MAX_DESCRIPTION_CHARS:
        raise ValueError(f"the description of {name} has over {MAX_DESCRIPTION_CHARS} characters")
    try:
        arguments = _arguments(schema)
    except ValueError as error:
        raise ValueError(f"the arguments of {name}: {error}") from error
    for text in (description, *_texts(schema)):
        if found := _UNPRINTABLE.search(text):
            raise ValueError(f"the text about {name} has the unprintable character {found[0]!r}")
    return DeclaredSpec(name, description.strip(), ends_episode=ends_episode, schema=arguments)


def require_no_controls(specs: Sequence[ToolSpec], controls: Iterable[str]) -> None:
    """Raise ExtensionError for a declared tool whose text contains a control token of the model.

    Tools are part of the prompt's scaffold, in which such a text would become the token.
    """
    # Some vocabularies contain runs of spaces, which no text can do without.
    marks = [control for control in controls if control.strip()]
    for spec in specs:
        if not isinstance(spec, DeclaredSpec):
            continue
        for text in (spec.name, spec.description, *_texts(spec.arguments.schema)):
            found = next((mark for mark in marks if mark in text), None)
            if found is not None:
                raise ExtensionError(
                    f"the tool {spec.name} can't be offered to this model",
                    why=f"its description holds {found!r}, a control token of the vocabulary",
                    fix="word it differently, in the job or in the bundle's manifest",
                )


def _arguments(schema: Mapping[str, object]) -> Arguments:
    try:
        size = len(json.dumps(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError("not a JSON schema") from error
    if size > MAX_SCHEMA_BYTES:
        raise ValueError(f"the schema has over {MAX_SCHEMA_BYTES} bytes")
    require_checkable(schema)
    return Arguments.of({"type": "object", "properties": {}, **schema})


def require_checkable(schema: Mapping[str, object], depth: int = 0) -> None:
    """Raise ValueError for a schema with a keyword that can't be checked in linear time."""
    if depth > MAX_DEPTH:
        raise ValueError(f"the schema is over {MAX_DEPTH} levels deep")
    for keyword, value in schema.items():
        if keyword not in KEYWORDS:
            raise ValueError(
                f"the keyword {keyword[:40]!r} is not checked here: leave it out, the tool itself "
                "may refuse a call"
            )
        for inner in _inner(keyword, value):
            require_checkable(inner, depth + 1)


def _inner(keyword: str, value: object) -> Iterator[Mapping[str, object]]:
    """Yield the schemas inside the value of a keyword."""
    match value:
        case dict() if keyword == "properties":
            yield from (each for each in value.values() if isinstance(each, dict))
        case dict() if keyword in _ONE:
            yield value
        case list() if keyword in _SEVERAL:
            yield from (each for each in value if isinstance(each, dict))


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, each in value.items():
                yield str(name)
                yield from _texts(each)
        case list() | tuple():
            for each in value:
                yield from _texts(each)
