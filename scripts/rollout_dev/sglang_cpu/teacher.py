"""Compare the logprobs of records with a teacher-forced recomputation. Runs in the server's
environment, with transformers in fp32 and none of the package's code.

    teacher.py --model VERSION=FOLDER [--model …] [--temperature 1] RECORD…

A record is a `trajectory.json` or `.json.zst`. Each is read whole by every checkpoint; a sampled
token must have the logprob of the checkpoint that its segment's weight version names, and where
the weights changed inside a turn, no other cut may fit. Prints one JSON object; exit status 1 when
a token is off by more than the tolerance.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import launch  # type: ignore[import-not-found] # noqa: F401 - defines what transformers needs
import msgspec
import numpy as np
import torch
import zstandard
from transformers import AutoModelForCausalLM

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK = 1024
"""Positions whose logits are in memory at a time."""


class Segment(msgspec.Struct, frozen=True):
    """A run of tokens, as stored."""

    kind: str
    start: int
    end: int
    turn: int
    weight_version: str | None = None


class Sample(msgspec.Struct, frozen=True):
    """One token sequence, as stored."""

    token_ids: list[int]
    logprobs: list[float | None]
    segments: list[Segment]


class Record(Sample, frozen=True):
    """The fields of a stored trajectory that are compared."""

    episode: str
    prompt_logprobs: list[float | None] = []
    branches: list[Sample] = []


@dataclass
class VersionCounts:
    """The tokens of one weight version, compared with its checkpoint."""

    tokens: int = 0
    max_difference: float = 0.0
    decided: int = 0
    """Number of tokens whose logprob no other checkpoint has."""


@dataclass(frozen=True)
class Crossing:
    """A change of weights inside a turn, counted in the turn's tokens."""

    episode: str
    turn: int
    tokens: int
    cut: int
    """Where the new weights begin according to the record."""
    first: int
    """The first and last cuts that the logprobs allow; first > last: no cut fits."""
    last: int


@dataclass
class Comparison:
    """The printed result."""

    records: int = 0
    tokens: int = 0
    max_difference: float = 0.0
    prompt_tokens: int = 0
    """The harness's tokens, if the record has their logprobs."""
    prompt_max_difference: float = 0.0
    versions: dict[str, VersionCounts] = field(default_factory=dict)
    crossings: list[Crossing] = field(default_factory=list)


class Teacher:
    """Checkpoints by weight version, and the sampling temperature."""

    def __init__(self, models: dict[str, Path], *, temperature: float, tolerance: float) -> None:
        """Load each folder once; `from_pretrained` puts models into evaluation mode."""
        loaded = {
            folder: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
            for folder in sorted(set(models.values()))
        }
        self._models = {version: loaded[folder] for version, folder in models.items()}
        self._temperature = temperature or 1.0
        self._tolerance = tolerance
        self.comparison = Comparison()

    def compare(self, record: Record) -> None:
        """Compare one record and add it to the comparison."""
        self.comparison.records += 1
        for sample in (record, *record.branches):
            recorded = _floats(sample.logprobs)
            off = self._differences(sample.token_ids, recorded)
            for segment in sample.segments:
                if segment.kind == "sampled":
                    self._count(segment, off)
            self._find_crossings(record.episode, sample.segments, off)
        if record.prompt_logprobs:
            self._compare_prompt(record)

    def _differences(
        self, ids: list[int], recorded: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]]:
        """Return each recorded logprob's distance from each checkpoint's; NaN without a record."""
        known: dict[int, NDArray[np.float64]] = {}
        for model in self._models.values():
            if id(model) not in known:
                known[id(model)] = np.abs(_forced(model, ids, self._temperature) - recorded)
        return {version: known[id(model)] for version, model in self._models.items()}

    def _count(self, segment: Segment, off: dict[str, NDArray[np.float64]]) -> None:
        own = self._version(segment)
        run = slice(segment.start, segment.end)
        difference = float(off[own][run].max())
        counts = self.comparison.versions.setdefault(own, VersionCounts())
        counts.tokens += segment.end - segment.start
        counts.max_difference = max(counts.max_difference, difference)
        others = [
            column[run] for version, column in off.items() if not self._are_same(version, own)
        ]
        if others:
            counts.decided += int((np.minimum.reduce(others) > self._tolerance).sum())
        self.comparison.tokens += segment.end - segment.start
        self.comparison.max_difference = max(self.comparison.max_difference, difference)

    def _find_crossings(
        self, episode: str, segments: list[Segment], off: dict[str, NDArray[np.float64]]
    ) -> None:
        for before, after in pairwise(segments):
            if before.kind != "sampled" or after.kind != "sampled":
                continue
            old, new = self._version(before), self._version(after)
            if self._are_same(old, new):
                continue
            run = slice(before.start, after.end)
            (not_old,) = np.nonzero(off[old][run] > self._tolerance)
            (not_new,) = np.nonzero(off[new][run] > self._tolerance)
            tokens = after.end - before.start
            first = int(not_new[-1]) + 1 if len(not_new) else 0
            last = int(not_old[0]) if len(not_old) else tokens
            cut = before.end - before.start
            self.comparison.crossings.append(
                Crossing(episode, after.turn, tokens, cut, first, last)
            )

    def _compare_prompt(self, record: Record) -> None:
        """Compare logprobs of the harness's tokens, each under the next turn's weights.

        They are not scaled by the temperature.
        """
        recorded = _floats(record.prompt_logprobs)
        for segment, sampled in pairwise(record.segments):
            run = slice(segment.start, segment.end)
            if segment.kind == "sampled" or np.isnan(recorded[run]).all():
                continue
            model = self._models[self._version(sampled)]
            off = np.abs(_forced(model, record.token_ids[: segment.end], 1.0)[run] - recorded[run])
            self.comparison.prompt_tokens += int(np.isfinite(off).sum())
            self.comparison.prompt_max_difference = max(
                self.comparison.prompt_max_difference, float(np.nanmax(off))
            )

    def _version(self, segment: Segment) -> str:
        version = segment.weight_version or "default"
        if version not in self._models:
            raise SystemExit(f"a segment was sampled by {version!r}: pass --model {version}=FOLDER")
        return version

    def _are_same(self, one: str, other: str) -> bool:
        return self._models[one] is self._models[other]


@torch.no_grad()  # type: ignore[untyped-decorator]
def _forced(model: torch.nn.Module, ids: list[int], temperature: float) -> NDArray[np.float64]:
    """Return the logprob of each id given those before it, float64 `[n]`; NaN for the first."""
    whole = np.full(len(ids), math.nan)
    read = model.model(torch.tensor([ids])).last_hidden_state[0]
    for start in range(0, len(ids) - 1, CHUNK):
        end = min(start + CHUNK, len(ids) - 1)
        logits = model.lm_head(read[start:end]) / temperature
        wanted = torch.tensor(ids[start + 1 : end + 1])[:, None]
        column = torch.log_softmax(logits, dim=-1).gather(1, wanted)[:, 0]
        whole[start + 1 : end + 1] = column.double().numpy()
    return whole


def _floats(column: list[float | None]) -> NDArray[np.float64]:
    return np.array([math.nan if value is None else value for value in column])


def _read(path: Path) -> Record:
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().decompress(data)
    return msgspec.json.decode(data, type=Record)


def main(arguments: list[str]) -> int:
    """Compare the records; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("records", type=Path, nargs="+", metavar="RECORD")
    parser.add_argument("--model", action="append", required=True, metavar="VERSION=FOLDER")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args(arguments)
    models = dict(pair.split("=", 1) for pair in options.model)
    teacher = Teacher(
        {version: Path(folder) for version, folder in models.items()},
        temperature=options.temperature,
        tolerance=options.tolerance,
    )
    for path in options.records:
        teacher.compare(_read(path))
    print(json.dumps(asdict(teacher.comparison)))
    return 0 if teacher.comparison.max_difference <= options.tolerance else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
