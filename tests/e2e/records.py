"""Check stored trajectories with zstd, json and hashlib alone, without the package's own code."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import zstandard


def read(path: Path) -> dict[str, Any]:
    """Read the record of a `trajectory.json.zst`."""
    return read_bytes(path.read_bytes())


def read_bytes(data: bytes) -> dict[str, Any]:
    """Decode the record from the bytes of a `trajectory.json.zst`."""
    record = json.loads(zstandard.ZstdDecompressor().decompress(data))
    assert isinstance(record, dict)
    return record


def committed(folder: Path) -> list[Path]:
    """List the committed trajectories in a job's folder."""
    return sorted(folder.glob("episodes/*/*/trajectory.json.zst"))


def check(record: dict[str, Any]) -> None:
    """Check every invariant that the record alone can show."""
    for number, branch in enumerate([record, *record.get("branches", ())]):
        turns = [turn for turn in record["turns"] if turn.get("branch", 0) == number]
        _check_branch(branch, turns)
    if record["failure"] is not None:
        assert record["reward"] is None
    if record["verdict"] is None:
        assert record["reward"] is None


def _check_branch(record: dict[str, Any], turns: list[dict[str, Any]]) -> None:
    ids, mask, logprobs = record["token_ids"], record["loss_mask"], record["logprobs"]
    assert len(ids) == len(mask) == len(logprobs)
    sampled = [0] * len(ids)
    position = 0
    for segment in record["segments"]:
        assert segment["start"] == position
        position = segment["end"]
        if segment["kind"] == "sampled":
            sampled[segment["start"] : segment["end"]] = [1] * (segment["end"] - segment["start"])
    assert position == len(ids)
    assert mask == sampled
    for bit, logprob in zip(mask, logprobs, strict=True):
        assert logprob is None if not bit else math.isfinite(logprob)
    for turn in turns:
        length = turn["request"]["length"]
        head = hashlib.sha256(struct.pack(f"<{length}i", *ids[:length])).hexdigest()
        assert turn["request"]["sha256"] == head
        assert mask[length] == 1
    assert sum(turn["completion_tokens"] for turn in turns) == sum(mask)
