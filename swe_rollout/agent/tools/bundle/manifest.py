"""The manifest of a bundle: `bundle.yaml`, which lists its tools."""

from __future__ import annotations

from typing import Annotated, Any, Final

import yaml
from pydantic import Field, StringConstraints, ValidationError

from swe_rollout.agent.tools.declared import DeclaredSpec, declared_spec
from swe_rollout.spec.model import Model

MANIFEST: Final = "bundle.yaml"
FILE: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}){0,7}$"
"""Pattern of a bundle's file: a relative path without hidden names."""
MAX_TOOLS: Final = 64
MAX_BYTES: Final = 256 << 10
_MAX_VALUES: Final = 50_000
_NO_ARGUMENTS: Final = {"type": "object", "properties": {}}


class BundledTool(Model):
    """One tool: its description for the policy, and the program that it calls."""

    name: str
    description: str
    file: Annotated[str, StringConstraints(pattern=FILE)] | None = None
    """The program; by default the file with the tool's name."""
    parameters: dict[str, Any] = Field(default_factory=lambda: dict(_NO_ARGUMENTS))
    """The JSON schema of its arguments."""
    ends_episode: bool = False
    """Whether the policy hands in its work by calling it."""

    @property
    def program(self) -> str:
        """The path of the program in the bundle."""
        return self.file or self.name

    def spec(self) -> DeclaredSpec:
        """Return the tool as the policy sees it. Raises ValueError if it can't be offered."""
        return declared_spec(
            self.name, self.description, self.parameters, ends_episode=self.ends_episode
        )


class Manifest(Model):
    """The tools of a bundle, in the order they are offered."""

    tools: Annotated[tuple[BundledTool, ...], Field(min_length=1, max_length=MAX_TOOLS)]


def read_manifest(text: bytes) -> Manifest:
    """Read `bundle.yaml`. Raises ValueError, with the place, if it is invalid."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"{MANIFEST} has over {MAX_BYTES >> 10} KiB")
    try:
        value = yaml.safe_load(text.decode("utf-8-sig"))
        _require_small(value)
        found = Manifest.model_validate(value)
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{MANIFEST} is no YAML: {str(error).partition(chr(10))[0]}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the top"
        raise ValueError(f"{MANIFEST}: {place}: {first['msg']}") from error
    for tool in found.tools:
        tool.spec()
    return found


def _require_small(value: object) -> None:
    """Raise ValueError for YAML whose aliases expand to more than fits into memory."""
    left, seen = [value], 0
    while left:
        seen += 1
        if seen > _MAX_VALUES:
            raise ValueError(f"{MANIFEST} stands for over {_MAX_VALUES} values")
        match left.pop():
            case dict() as mapping:
                left += mapping.values()
            case list() as items:
                left += items
