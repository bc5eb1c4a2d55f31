"""The parsers of `renderers`, which read ids: text is encoded with a small vocabulary of a family.

It has its own statuses; a call that it considers complete is checked as its caller would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from rollout_dev import families
from rollout_dev.families import FAMILIES
from rollout_dev.parser_probes.probes import ParserProbe
from rollout_dev.peers.parsers import (
    TABLES,
    PeerCalls,
    PeerParser,
    checked_call,
    parse_each,
    with_header,
)
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall


class _Reader(msgspec.Struct, frozen=True):
    parse: str
    tools: bool = False
    reasoning: bool = False
    tokens: dict[str, str] = {}


_READERS: Final = msgspec.convert(TABLES["renderers"], dict[ToolFormat, _Reader])


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
    formats = frozenset(_READERS)

    def parse(self, probes: Sequence[ParserProbe]) -> Sequence[PeerCalls]:
        return parse_each(_parse, probes)


def _parse(probe: ParserProbe) -> list[ToolCall]:
    from renderers import parsing  # noqa: PLC0415 - a peer

    reader = _READERS[probe.tool_format]
    tokenizer = _tokenizer(probe.tokenizer or _written(probe.tool_format))
    text = with_header(probe, probe.without_stop())
    ids = list(probe.ids) or tokenizer.encode(text, add_special_tokens=False)
    options: dict[str, object] = {
        key: tokenizer.convert_tokens_to_ids(token) for key, token in reader.tokens.items()
    }
    if probe.tool_format is not ToolFormat.HARMONY:
        options["stop_ids"] = set[int]()
    if reader.tools:
        options["tools"] = [tool.function() for tool in probe.tools]
    if reader.reasoning:
        options["prefilled_thinking"] = probe.reasoning.opened
    parse = cast("Callable[..., _Parsed]", getattr(parsing, reader.parse))
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
