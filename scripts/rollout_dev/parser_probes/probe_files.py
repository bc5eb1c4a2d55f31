"""Load files of parser probes: the built-in one and others (docs/reference/parsers.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from rollout_dev.parser_probes.json_probes import json_probes
from rollout_dev.parser_probes.probes import ExpectedCall, ParserProbe
from swe_rollout.agent.parsers.base import Reasoning
from swe_rollout.agent.tools.arguments import Arguments
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.errors import UsageError
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus

BUILT_IN: Final = tuple(sorted(Path(__file__).parent.glob("probes*.json")))
"""Every file of built-in probes."""

_MARKS_OF_FUNCTIONGEMMA: Final = (
    ("<|tool_call>", "<start_function_call>"),
    ("<tool_call|>", "<end_function_call>"),
    ('<|"|>', "<escape>"),
)

_NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class _SchemaToolSpec(ToolSpec):
    """A tool whose arguments are described by any JSON schema of an object."""

    given: Arguments = field(kw_only=True)

    @property
    def arguments(self) -> Arguments:
        return self.given


class _Function(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: _NonEmpty
    description: str = ""
    parameters: dict[str, object] = msgspec.field(default_factory=lambda: {"type": "object"})


class _Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool in OpenAI's function form."""

    type: Literal["function"]
    function: _Function


class _Reasoning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    opener: _NonEmpty
    closer: _NonEmpty


class _Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: CallStatus | Annotated[tuple[CallStatus, ...], msgspec.Meta(min_length=1)]
    name: str | None = None
    arguments: dict[str, object] | None = None
    id: str | None = None
    raw: str | None = None


class _Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: ToolFormat
    expect: tuple[_Expected, ...]
    name: str = ""
    tools: tuple[_Tool, ...] | None = None
    text: str | None = None
    ids: tuple[int, ...] | None = None
    tokenizer: str = ""
    prompt_opened_reasoning: bool = False
    reasoning: _Reasoning | None = None


class _ProbeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    probes: Annotated[tuple[_Probe, ...], msgspec.Meta(min_length=1)]
    tools: tuple[_Tool, ...] = ()
    """The tools of probes without their own."""


def load_probes(*paths: Path) -> tuple[ParserProbe, ...]:
    """Load the probes in files; by default the built-in ones and those derived from written calls.

    Raises UsageError, which names the place of the error in a file.
    """
    probes = tuple(probe for path in paths or BUILT_IN for probe in _load(path))
    if paths:
        return probes
    of_gemma = (each for each in probes if each.tool_format is ToolFormat.GEMMA4)
    return (*probes, *map(_functiongemma, of_gemma), *json_probes(probes[0].tools))


def _functiongemma(probe: ParserProbe) -> ParserProbe:
    """Return a probe of Gemma 4 in the marks of FunctionGemma, which is like it in all else."""
    text = probe.text
    for mark, other in _MARKS_OF_FUNCTIONGEMMA:
        text = text.replace(mark, other)
    name = probe.name.replace("gemma4", "functiongemma")
    return replace(probe, name=name, tool_format=ToolFormat.FUNCTIONGEMMA, text=text)


def _load(path: Path) -> tuple[ParserProbe, ...]:
    try:
        file = msgspec.convert(_as_file(_decode(path.read_text("utf-8-sig"))), _ProbeFile)
        shared = tuple(map(_tool_spec, file.tools))
        return tuple(
            _parser_probe(probe, f"probe {number}", shared, path.parent)
            for number, probe in enumerate(file.probes, 1)
        )
    except OSError as error:
        raise UsageError(
            f"{path} can't be read", why=str(error), fix="name a file with probes"
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{path} is not a file of probes", why=str(error), fix="see docs/reference/parsers.md"
        ) from error


def _decode(text: str) -> object:
    """Decode one JSON value, or JSON lines into a list."""
    try:
        value: object = json.loads(text)
    except ValueError:
        value = [_decode_line(*each) for each in enumerate(text.split("\n"), 1) if each[1].strip()]
    return value


def _decode_line(number: int, line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error


def _as_file(value: object) -> object:
    match value:
        case list():
            return {"probes": value}
        case {"format": _}:
            return {"probes": [value]}
        case _:
            return value


def _parser_probe(
    probe: _Probe, place: str, shared_tools: tuple[ToolSpec, ...], folder: Path
) -> ParserProbe:
    try:
        if probe.ids is None and probe.text is None:
            raise ValueError("it must have `text`, or `ids` with `tokenizer`")  # noqa: TRY301
        if probe.ids is not None and not probe.tokenizer:
            raise ValueError("`ids` need the `tokenizer` they belong to")  # noqa: TRY301
        tools = shared_tools if probe.tools is None else tuple(map(_tool_spec, probe.tools))
        marks = probe.reasoning or Reasoning()
        return ParserProbe(
            name=probe.name or place,
            tool_format=probe.format,
            tools=tools,
            text=probe.text or "",
            ids=probe.ids or (),
            tokenizer=None if probe.ids is None else folder / probe.tokenizer,
            reasoning=Reasoning(marks.opener, marks.closer, opened=probe.prompt_opened_reasoning),
            expect=tuple(map(_expected_call, probe.expect)),
        )
    except ValueError as error:
        raise ValueError(f"{place} ({probe.name}): {error}") from error


def _tool_spec(tool: _Tool) -> ToolSpec:
    function = tool.function
    try:
        given = Arguments.of(function.parameters)
    except ValueError as error:
        raise ValueError(f"the function {function.name!r}: {error}") from error
    return _SchemaToolSpec(function.name, function.description, given=given)


def _expected_call(expected: _Expected) -> ExpectedCall:
    status = expected.status
    statuses = frozenset([status] if isinstance(status, CallStatus) else status)
    return ExpectedCall(statuses, expected.name, expected.arguments, expected.id, expected.raw)
