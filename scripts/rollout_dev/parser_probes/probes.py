"""Probes of tool-call parsers: a sampled turn, and the calls a strict parser must find in it.

Used by tests, `scripts/conformance parsers`, and authors of parsers. `probe_files` loads them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from swe_rollout.agent.encoding import Encoding
from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.errors import UsageError
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall

STOPS = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "</s>", "[e~["),
    *("<｜end▁of▁sentence｜>", "<|observation|>", "<|user|>"),
)
"""Tokens that end a turn. The agent loop cuts them off; a probe's text may end with one."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """One call attempt expected in a turn. Fields that are None are not compared."""

    statuses: frozenset[CallStatus]
    """The accepted statuses."""
    name: str | None = None
    arguments: Mapping[str, object] | None = None
    """The arguments, compared only for a call that is ok; others have none."""
    id: str | None = None
    raw: str | None = None
    """The raw text, compared without the white space around it."""

    @property
    def runs(self) -> bool:
        """Whether the call may run."""
        return CallStatus.OK in self.statuses

    def matches(self, call: ToolCall) -> bool:
        """Return whether a parsed call is the expected one."""
        is_ok = call.status is CallStatus.OK
        return (
            call.status in self.statuses
            and self.name in (None, call.name)
            and (not is_ok or self.arguments is None or _same(self.arguments, call.arguments))
            and self.id in (None, call.id)
            and (self.raw is None or self.raw.strip() == call.raw.strip())
        )


@dataclass(frozen=True, slots=True)
class ParserProbe:
    """A sampled turn in one format, the tools it may call, and the calls expected in it."""

    name: str
    tool_format: ToolFormat
    tools: tuple[ToolSpec, ...]
    text: str
    ids: tuple[int, ...]
    tokenizer: Path | None
    """Folder or file of the tokenizer of `ids`; None if the probe has only text."""
    reasoning: Reasoning
    expect: tuple[ExpectedCall, ...]

    def passes(self, calls: Sequence[ToolCall]) -> bool:
        """Return whether a parser found exactly the expected calls, in order."""
        return len(calls) == len(self.expect) and all(
            expected.matches(call) for expected, call in zip(self.expect, calls, strict=True)
        )

    def without_stop(self) -> str:
        """Return the text as the agent loop parses it: without the token that ended the turn."""
        stop = next((stop for stop in STOPS if self.text.endswith(stop)), "")
        return self.text.removesuffix(stop)

    def sampled(self) -> SampledText:
        """Return the turn as parser input; raise UsageError if the ids are not the tokenizer's."""
        if self.tokenizer is None:
            return SampledText(self.without_stop(), ())
        encoding = _encoding(self)
        ids = list(self.ids)
        if ids and encoding.controls.get(ids[-1]) in STOPS:
            ids.pop()
        return encoding.sampled(ids)


def run_probe(probe: ParserProbe) -> tuple[ToolCall, ...]:
    """Parse a probe with our parser; raise UsageError if its ids can't be decoded."""
    parser = parser_for(probe.tool_format)
    return parser.parse(probe.sampled(), tools=probe.tools, reasoning=probe.reasoning)


def _encoding(probe: ParserProbe) -> Encoding:
    path = probe.tokenizer
    assert path is not None, "only probes with ids have a tokenizer"  # noqa: S101 - for mypy
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        tokenizer = Tokenizer.from_str(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{probe.name}: {file} can't be read", why=str(error)) from error
    except Exception as error:  # the library has no error class of its own
        raise UsageError(f"{probe.name}: {file} is not a tokenizer", why=str(error)) from error
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if any(not 0 <= token < size for token in probe.ids):
        raise UsageError(f"{probe.name}: an id is outside the {size} ids of {file}")
    return Encoding(tokenizer)


def _same(one: object, other: object) -> bool:
    """Compare as JSON: 1 differs from true, and 3 from 3.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
