"""The parsers of `renderers`, which read ids: text is encoded with a small vocabulary of a family.

It has its own statuses; a call that it considers complete is checked as its caller would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Protocol, cast

from rollout_dev import families
from rollout_dev.families import FAMILIES
from rollout_dev.parser_probes.probes import ParserProbe
from rollout_dev.peers.parsers import (
    PeerCalls,
    PeerParser,
    checked_call,
    parse_each,
    with_header,
)
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

_CALL: Final = {"tool_call_id": "<tool_call>", "tool_call_end_id": "</tool_call>"}
_THINK: Final = {"think_id": "<think>", "think_end_id": "</think>"}
_PARSERS: Final = {
    ToolFormat.HERMES: ("parse_qwen3", {**_CALL, "reasoning_end_id": "</think>"}),
    ToolFormat.QWEN_XML: ("parse_qwen35", {**_CALL, **_THINK}),
    **dict.fromkeys(
        (ToolFormat.GLM45, ToolFormat.GLM47),
        (
            "parse_glm",
            {
                **_CALL,
                **_THINK,
                "arg_key_id": "<arg_key>",
                "arg_key_end_id": "</arg_key>",
                "arg_value_id": "<arg_value>",
                "arg_value_end_id": "</arg_value>",
            },
        ),
    ),
    ToolFormat.KIMI_K2: (
        "parse_kimi_k2",
        {
            "tool_calls_section_begin_id": "<|tool_calls_section_begin|>",
            "tool_calls_section_end_id": "<|tool_calls_section_end|>",
            "tool_call_begin_id": "<|tool_call_begin|>",
            "tool_call_argument_begin_id": "<|tool_call_argument_begin|>",
            "tool_call_end_id": "<|tool_call_end|>",
        },
    ),
    ToolFormat.DEEPSEEK_V3: (
        "parse_deepseek_v3",
        {
            "tool_calls_begin_id": "<｜tool▁calls▁begin｜>",
            "tool_calls_end_id": "<｜tool▁calls▁end｜>",
            "tool_call_begin_id": "<｜tool▁call▁begin｜>",
            "tool_call_end_id": "<｜tool▁call▁end｜>",
            "tool_sep_id": "<｜tool▁sep｜>",
        },
    ),
    ToolFormat.LLAMA3: ("parse_llama_3", {}),
    ToolFormat.HARMONY: (
        "parse_gpt_oss",
        {
            f"{word}_id": f"<|{word}|>"
            for word in ("return", "call", "start", "end", "channel", "message", "constrain")
        },
    ),
    ToolFormat.MINIMAX_M2: (
        "parse_minimax",
        {
            **_THINK,
            "tool_call_id": "<minimax:tool_call>",
            "tool_call_end_id": "</minimax:tool_call>",
        },
    ),
}
_TAKES_TOOLS: Final = frozenset(
    {ToolFormat.QWEN_XML, ToolFormat.GLM45, ToolFormat.GLM47, ToolFormat.MINIMAX_M2}
)
_TAKES_REASONING: Final = frozenset(_PARSERS) - {ToolFormat.LLAMA3, ToolFormat.HARMONY}


class _Tokenizer(Protocol):
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def convert_tokens_to_ids(self, token: str) -> int | None: ...


class _Call(Protocol):
    name: str | None
    arguments: object
    raw: str
    status: str


class _Parsed(Protocol):
    tool_calls: Sequence[_Call] | None


class Renderers(PeerParser):
    """The package renderers, which finds calls in ids, each with a status."""

    name = "renderers 0.1.12"
    formats = frozenset(_PARSERS)

    def parse(self, probes: Sequence[ParserProbe]) -> Sequence[PeerCalls]:
        return parse_each(_parse, probes)


def _parse(probe: ParserProbe) -> list[ToolCall]:
    from renderers import parsing  # noqa: PLC0415 - a peer

    name, tokens = _PARSERS[probe.tool_format]
    tokenizer = _tokenizer(probe.tokenizer or _written(probe.tool_format))
    text = with_header(probe, probe.without_stop())
    ids = list(probe.ids) or tokenizer.encode(text, add_special_tokens=False)
    options: dict[str, object] = {
        key: tokenizer.convert_tokens_to_ids(token) for key, token in tokens.items()
    }
    if probe.tool_format is not ToolFormat.HARMONY:
        options["stop_ids"] = set[int]()
    if probe.tool_format in _TAKES_TOOLS:
        options["tools"] = [tool.function() for tool in probe.tools]
    if probe.tool_format in _TAKES_REASONING:
        options["prefilled_thinking"] = probe.reasoning.opened
    parse = cast("Callable[..., _Parsed]", getattr(parsing, name))
    return [_call(found, probe) for found in parse(tokenizer, ids, **options).tool_calls or ()]


def _call(found: _Call, probe: ParserProbe) -> ToolCall:
    if found.status != "ok":
        return ToolCall(CallStatus.MALFORMED, found.raw, found.name or "")
    return checked_call(probe, found.name or "", found.arguments)


@cache
def _written(tool_format: ToolFormat) -> Path:
    name = next(f.name for f in FAMILIES.values() if f.tool_format is tool_format)
    return families.write(name, Path(tempfile.mkdtemp(prefix="swe-rollout-")) / name)


@cache
def _tokenizer(path: Path) -> _Tokenizer:
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 - only where peers are

    file = path / "tokenizer.json" if path.is_dir() else path
    load = cast("Callable[..., _Tokenizer]", PreTrainedTokenizerFast)
    return load(tokenizer_file=str(file))
