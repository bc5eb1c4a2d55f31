"""Prepare an episode for a page: its record, bounded in size, and its row in the table.

The record is the stored one (docs/reference/trajectory.md) with these changes: token columns are in
`tokens`, replay data is left out, long texts are cut, and each turn has `words`.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

import msgspec

from swe_rollout.agent.recorded_text import recorded_text
from swe_rollout.text.redaction import redact
from swe_rollout.tokens.branch import Branch
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.trajectory_json import to_json
from swe_rollout.viewer.token_text import TokenTexts

LONGEST_TEXT: Final = 100_000
"""The most characters of one text, such as the output of a command."""
MOST_TEXT: Final = 16 << 20
"""The most characters of all texts in an episode; later texts are cut short."""
_SHORT_TEXT: Final = 200
_MESSAGE: Final = 500
"""The most characters of a failure's message in a row."""
_MOST_TERMS: Final = 12
"""The most terms of a reward in a row."""
_DEEPEST: Final = 60
"""The most levels of nested arguments; deeper ones are left out."""
_DIGITS: Final = 4
"""The number of decimal places of a logprob."""
_LEVEL: Final = 6


Row: TypeAlias = dict[str, object]
"""An episode in its job's table, as made by `row_of` and read by the page."""


def row_of(trajectory: Trajectory, blob: str | None) -> Row:
    """Return the row of an episode.

    `blob` says where its record is: an element of the page or a path below it, or None if it is in
    neither. `verdict` is the verdict or what failed, `kind` its colour: good, bad, warn or dim.
    """
    failure, verdict, timing = trajectory.failure, trajectory.verdict, trajectory.timing
    word, kind = _outcome(trajectory)
    return {
        "instance": trajectory.episode.instance,
        "sample": trajectory.episode.sample,
        "verdict": word,
        "kind": kind,
        "reward": None if trajectory.reward is None else trajectory.reward.value,
        "terms": _terms(trajectory),
        "ended": str(trajectory.stop_reason or ("unknown" if failure is None else "failure")),
        "owner": None if failure is None else failure.boundary.value,
        "failure": None if failure is None else failure.type,
        "message": None if failure is None else _start_of(redact(failure.message)),
        "turns": len(trajectory.turns),
        "tokens": trajectory.token_count,
        "sampled": trajectory.sampled_count,
        "engine_s": timing.engine_s,
        "tools_s": timing.tools_s,
        "total_s": timing.total_s,
        "findings": 0 if verdict is None else len(verdict.integrity),
        "attempt": trajectory.attempt,
        "blob": blob,
    }


def _outcome(trajectory: Trajectory) -> tuple[str, str]:
    """Return in words how the episode ended, and their colour."""
    if trajectory.failure is not None:
        return f"{trajectory.failure.boundary} failed", "warn"
    if trajectory.verdict is None:
        return "not graded", "dim"
    return trajectory.verdict.status.value, "good" if trajectory.resolved else "bad"


def _terms(trajectory: Trajectory) -> dict[str, float]:
    """Return the scores of the reward's terms by name, if there are several."""
    terms = () if trajectory.reward is None else trajectory.reward.terms
    if len(terms) <= 1:
        return {}
    return {_start_of(term.name): term.score for term in terms[:_MOST_TERMS]}


def _start_of(text: str) -> str:
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}…"


def encoded(value: object) -> bytes:
    """Encode a value as JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 can't encode
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def packed(value: object) -> str:
    """Encode a value as base64 of raw DEFLATE of JSON, in which nothing can be markup."""
    return packed_json([encoded(value)])


def packed_json(parts: Iterable[bytes]) -> str:
    """Encode JSON, given in parts, as `packed` encodes a value."""
    compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = b"".join([*map(compressor.compress, parts), compressor.flush()])
    return base64.b64encode(data).decode()


class PackedRows:
    """The rows of a table, compressed as they come, for a table may be long."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._compressor = zlib.compressobj(1)
        self._chunks: list[bytes] = []
        self._is_empty = True

    def append(self, row: Row) -> None:
        """Add a row at the end."""
        data = encoded(row) if self._is_empty else b"," + encoded(row)
        self._chunks.append(self._compressor.compress(data))
        self._is_empty = False

    def json(self) -> Iterator[bytes]:
        """Yield the elements of a JSON array, in parts."""
        reader = zlib.decompressobj()
        for chunk in (*self._chunks, self._compressor.copy().flush()):
            yield reader.decompress(chunk)


def episode_record(trajectory: Trajectory, texts: TokenTexts | None) -> dict[str, Any]:
    """Return the record for the page. `texts` decodes tokens; without it, ids are shown."""
    record: dict[str, Any] = msgspec.json.decode(to_json(_without_replay(trajectory)))
    branches = [record, *(record.get("branches") or record.get("earlier_branches", ()))]
    columns = [_take_columns(each) for each in branches]
    for turn, stored in zip(trajectory.turns, record["turns"], strict=True):
        words = recorded_text(turn, trajectory.token_path).words
        stored["words"] = None if words is None else redact(words)
    bounded: dict[str, Any] = _Cutter().cut(record)
    shown = [bounded, *(bounded.get("branches") or bounded.get("earlier_branches", ()))]
    for branch, own in zip(shown, columns, strict=True):
        branch["tokens"] = own
    _add_texts(bounded, trajectory, texts)
    return bounded


def _without_replay(trajectory: Trajectory) -> Trajectory:
    return replace(
        trajectory,
        routed_experts=None,
        sampling_mask=None,
        prompt_logprobs=(),
        branches=tuple(map(_slim, trajectory.branches)),
    )


def _slim(branch: Branch) -> Branch:
    return replace(branch, prompt_logprobs=(), routed_experts=None, sampling_mask=None)


def _take_columns(branch: dict[str, Any]) -> dict[str, Any]:
    """Take the token columns out of a branch; the mask follows from its segments."""
    del branch["loss_mask"]
    branch.pop("prompt_logprobs", None)
    logprobs = branch.pop("logprobs")
    return {
        "ids": branch.pop("token_ids"),
        "logprobs": [None if each is None else round(each, _DIGITS) for each in logprobs],
    }


def _add_texts(record: dict[str, Any], trajectory: Trajectory, texts: TokenTexts | None) -> None:
    """Add the text of each id, and the text at positions where it differs from that."""
    if texts is None or not texts.matches(trajectory):
        record["no_texts"] = "the tokenizer is not here; name it with --tokenizer"
        if texts is not None:
            record["no_texts"] = f"{texts.name} does not decode the sampled ids to their text"
        return
    known: dict[int, str] = {}
    shown = [record, *(record.get("branches") or record.get("earlier_branches", ()))]
    for branch, stored in zip([trajectory.main_branch, *trajectory.branches], shown, strict=True):
        odd: dict[str, str] = {}
        for segment in branch.segments:
            ids = branch.token_ids[segment.start : segment.end]
            for at, (token, text) in enumerate(zip(ids, texts.pieces(ids), strict=True)):
                if known.setdefault(token, text) != text:
                    odd[str(segment.start + at)] = text
        stored["tokens"]["odd"] = odd
    record["texts"] = {str(token): text for token, text in known.items()}


class _Cutter:
    """Cuts the texts of a record, so that no output of 50 MB gets into a page."""

    def __init__(self) -> None:
        self._left = MOST_TEXT

    def cut(self, value: Any, *, depth: int = 0) -> Any:
        match value:
            case str():
                return self._text(value)
            case list() | dict() if depth > _DEEPEST:
                return "…"
            case list():
                return [self.cut(each, depth=depth + 1) for each in value]
            case dict():
                pairs = value.items()
                return {self._text(key): self.cut(each, depth=depth + 1) for key, each in pairs}
            case _:
                return value

    def _text(self, text: str) -> str:
        limit = LONGEST_TEXT if self._left > 0 else _SHORT_TEXT
        self._left -= min(len(text), limit)
        if len(text) <= limit:
            return text
        return f"{text[:limit]}\n… and {len(text) - limit:,} more characters"
