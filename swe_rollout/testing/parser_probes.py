"""Probes of tool-call parsers: what a text holds, and what a strict parser must say of it.

The package's own probes are `parser_probes.json`; files in the same form come from outside too
(docs/reference/parsers.md). Used by tests, by `scripts/conformance/parsers.py`, and by people who
write a parser of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.errors import UsageError
from swe_rollout.tool_format import ToolFormat
from swe_rollout.trajectory import CallStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from swe_rollout.trajectory import ToolCall

OWN = Path(__file__).parent / "parser_probes.json"
STOPS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "</s>", "[e~["),
    *("<｜end▁of▁sentence｜>", "<|observation|>", "<|user|>"),
)
"""Tokens that end a turn. The loop cuts them; a probe's text may have one."""

_ALIASES = {
    "qwen": "hermes",
    "qwen2": "hermes",
    "qwen25": "hermes",
    "qwen3": "hermes",
    "qwen3_coder": "qwen_xml",
    "qwen3_xml": "qwen_xml",
    "qwen35": "qwen_xml",
    "qwen3_5": "qwen_xml",
    "qwen3coder": "qwen_xml",
    "glm": "glm45",
    "glm4": "glm45",
    "glm_4_5": "glm45",
    "glm46": "glm45",
    "glm_4_7": "glm47",
    "glm5": "glm47",
    "kimi": "kimi_k2",
    "deepseek": "deepseek_v3",
    "deepseekv3": "deepseek_v3",
    "deepseek_r1": "deepseek_v3",
    "deepseekv31": "deepseek_v31",
    "deepseek_v3_1": "deepseek_v31",
    "deepseekv32": "deepseek_v32",
    "deepseek_v3_2": "deepseek_v32",
    "dsml": "deepseek_v32",
    "llama": "llama3",
    "llama_3": "llama3",
    "llama3_json": "llama3",
    "mistral_v3": "mistral",
    "mistral_list": "mistral",
    "mistral_args": "mistral_v11",
    "mistral_new": "mistral_v11",
    "gpt_oss": "harmony",
    "gptoss": "harmony",
    "openai": "harmony",
    "minimax": "minimax_m2",
}


@dataclass(frozen=True, slots=True)
class Expected:
    """One attempt that the text holds. What is none is not compared."""

    status: CallStatus
    name: str | None = None
    arguments: Mapping[str, object] | None = None
    id: str | None = None
    raw: str | None = None

    def matches(self, call: ToolCall) -> bool:
        """Whether a parser said so."""
        return (
            call.status is self.status
            and self.name in (None, call.name)
            and (self.arguments is None or _same(self.arguments, call.arguments))
            and self.id in (None, call.id)
            and self.raw in (None, call.raw)
        )


@dataclass(frozen=True, slots=True)
class Probe:
    """A sampled turn in one format, the tools it may call, and what is in it."""

    name: str
    tool_format: ToolFormat
    tools: tuple[ToolSpec, ...]
    text: str
    ids: tuple[int, ...]
    tokenizer: str | None
    """Folder or name of what the ids are of; none: the text is all there is."""
    reasoning: Reasoning
    expect: tuple[Expected, ...]

    def passes(self, calls: Sequence[ToolCall]) -> bool:
        """Whether the calls that a parser found are those expected, in order."""
        return len(calls) == len(self.expect) and all(
            expected.matches(call) for expected, call in zip(self.expect, calls, strict=True)
        )

    def without_stop(self) -> str:
        """The text as the loop gives it to a parser: without the token that ended the turn."""
        stop = next((stop for stop in STOPS if self.text.endswith(stop)), "")
        return self.text.removesuffix(stop)


def run(probe: Probe, sampled: SampledText | None = None) -> tuple[ToolCall, ...]:
    """What our parser finds; `sampled` are the ids of the probe, where it has some."""
    text = sampled if sampled is not None else SampledText(probe.without_stop(), ())
    return parser_for(probe.tool_format).parse(text, tools=probe.tools, reasoning=probe.reasoning)


def load(path: Path = OWN) -> tuple[Probe, ...]:
    """The probes of a file; UsageError that names the probe and what is wrong with it."""
    try:
        return _read(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read", why=str(error)) from error
    except ValueError as error:
        raise UsageError(
            f"{path} is no file of probes", why=str(error), fix="see docs/reference/parsers.md"
        ) from error


def format_named(name: str) -> ToolFormat:
    """A format by our name or by one that is common elsewhere; ValueError for others."""
    plain = name.strip().lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    try:
        return ToolFormat(_ALIASES.get(plain, plain))
    except ValueError:
        known = ", ".join(ToolFormat)
        raise ValueError(f"there is no format {name!r}; known are {known}") from None


def _read(text: str) -> tuple[Probe, ...]:
    tools: object = []
    match _decode(text):
        case {"probes": list(probes), **rest}:
            tools = rest.get("tools", [])
        case {"name": _} as single:
            probes = [single]
        case list(probes):
            pass
        case _:
            raise ValueError("it must be a list of probes, or an object with `probes`")
    return tuple(_probe(each, number, tools) for number, each in enumerate(probes, 1))


def _decode(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        decoded = []
        for number, line in lines:
            try:
                decoded.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
        return decoded
    return value


def _probe(value: object, number: int, tools: object) -> Probe:
    if not isinstance(value, dict):
        raise ValueError(f"probe {number} is no object")  # noqa: TRY004 - one error for a file
    name = str(value.get("name", f"probe {number}"))
    try:
        return _checked(value, name, tools)
    except ValueError as error:
        raise ValueError(f"probe {number} ({name}): {error}") from error


def _checked(value: Mapping[str, object], name: str, tools: object) -> Probe:
    found = value.get("tools", tools)
    if not isinstance(found, list):
        raise ValueError("`tools` must be a list of functions")  # noqa: TRY004
    expect = value.get("expect", value.get("calls"))
    if not isinstance(expect, list):
        raise ValueError("`expect` must be a list of calls")  # noqa: TRY004
    text, ids = value.get("text", ""), value.get("ids", [])
    if not isinstance(text, str) or not isinstance(ids, list) or ("text" in value) == bool(ids):
        raise ValueError("it must have `text`, or `ids` with `tokenizer`")
    if ids and not all(isinstance(each, int) for each in ids):
        raise ValueError("`ids` must be numbers")
    tokenizer = value.get("tokenizer")
    if ids and not isinstance(tokenizer, str):
        raise ValueError("`ids` need the `tokenizer` they are of")
    return Probe(
        name=name,
        tool_format=format_named(str(value.get("format", ""))),
        tools=tuple(map(ToolSpec.of_function, found)),
        text=text,
        ids=tuple(ids),
        tokenizer=tokenizer if isinstance(tokenizer, str) else None,
        reasoning=_reasoning(value),
        expect=tuple(map(_expected, expect)),
    )


def _reasoning(value: Mapping[str, object]) -> Reasoning:
    opened = bool(value.get("prompt_opened_reasoning", value.get("prompt_opened_thinking", False)))
    match value.get("reasoning"):
        case {"opener": str(opener), "closer": str(closer)}:
            return Reasoning(opener, closer, opened=opened)
        case None:
            return Reasoning(opened=opened)
        case _:
            raise ValueError("`reasoning` has an `opener` and a `closer`")


def _expected(value: object) -> Expected:
    match value:
        case {"status": str(status), **rest}:
            arguments, name, call_id, raw = (
                rest.get(key) for key in ("arguments", "name", "id", "raw")
            )
            return Expected(
                CallStatus(status.strip().lower()),
                None if name is None else str(name),
                arguments if isinstance(arguments, dict) else None,
                None if call_id is None else str(call_id),
                None if raw is None else str(raw),
            )
        case {"name": str(name), "arguments": dict(arguments)}:
            return Expected(CallStatus.OK, name, arguments)
        case _:
            raise ValueError("a call in `expect` has at least a `status`")


def _same(one: object, other: object) -> bool:
    """Equal as JSON: 1 is not true, and 3 is not 3.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
