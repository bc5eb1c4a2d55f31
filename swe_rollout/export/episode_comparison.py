"""Compare two episodes: where they diverge, and with what result."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

import msgspec

from swe_rollout.text.formatting import format_duration
from swe_rollout.text.redaction import redact
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.types.turn import Turn

_DIFFED_LINES: Final = 2000
"""The most lines of a patch to compare; otherwise a policy could choose how long it takes."""
_SHOWN_CHARS: Final = 400


@dataclass(frozen=True, slots=True)
class Fact:
    """The value of one property in both episodes."""

    name: str
    before: str
    after: str

    @property
    def differs(self) -> bool:
        """Whether the two values differ."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class TokenDifference:
    """The first token of the main branch that differs."""

    index: int
    before: int | None
    """The token of the first episode; None if the episode ends before it."""
    after: int | None
    sampled: bool
    """Whether the policy sampled it in either episode; otherwise the harness wrote it."""


@dataclass(frozen=True, slots=True)
class TurnDifference:
    """The first turn whose sampled text differs."""

    index: int
    before: str
    """The start of what the policy said and called; empty if there is no such turn."""
    after: str


@dataclass(frozen=True, slots=True)
class EpisodeComparison:
    """Two episodes side by side."""

    facts: tuple[Fact, ...]
    first_turn: TurnDifference | None
    """None if both sampled the same text."""
    first_token: TokenDifference | None
    """None if the tokens are the same, or neither has any."""
    tests: tuple[Fact, ...]
    """Tests whose status differs."""
    patch_diff: tuple[str, ...]
    """Lines of the two patches that differ; empty for very long ones."""

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values."""
        record: dict[str, object] = msgspec.to_builtins(self)
        return record


def compare_episodes(before: Trajectory, after: Trajectory) -> EpisodeComparison:
    """Compare two episodes of the same task or of different tasks."""
    names = _facts(before)
    facts = tuple(
        Fact(name, old, new)
        for (name, old), new in zip(names.items(), _facts(after).values(), strict=True)
    )
    return EpisodeComparison(
        facts,
        _first_turn(before, after),
        _first_token(before, after),
        _tests(before, after),
        _patch_diff(before.patch, after.patch),
    )


def first_turn(before: Trajectory, after: Trajectory) -> int | None:
    """Return the first turn whose sampled text differs, or None. The viewer does the same."""
    for index, (old, new) in enumerate(zip_longest(before.turns, after.turns)):
        if old is None or new is None or old.text != new.text:
            return index
    return None


def _facts(trajectory: Trajectory) -> dict[str, str]:
    verdict, reward, failure = trajectory.verdict, trajectory.reward, trajectory.failure
    timing = trajectory.timing
    added, removed = _changed_lines(trajectory.patch)
    return {
        "task": trajectory.episode.instance,
        "policy": trajectory.policy,
        "ended": str(trajectory.stop_reason or "–"),
        "failure": f"{failure.boundary}: {failure.type}" if failure else "–",
        "verdict": str(verdict.status) if verdict else "–",
        "reward": f"{reward.value:g}" if reward else "–",
        "turns": str(len(trajectory.turns)),
        "tokens": str(trajectory.token_count),
        "sampled tokens": str(sum(turn.completion_tokens for turn in trajectory.turns)),
        "engine": format_duration(timing.engine_s),
        "tools": format_duration(timing.tools_s),
        "in all": format_duration(timing.total_s),
        "patch": f"+{added} −{removed} lines" if trajectory.patch else "empty",
        "seed": "–" if trajectory.seed is None else str(trajectory.seed),
        "attempt": str(trajectory.attempt),
    }


def _changed_lines(patch: str) -> tuple[int, int]:
    lines = patch.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    return added, sum(line.startswith("-") and not line.startswith("--- ") for line in lines)


def _first_turn(before: Trajectory, after: Trajectory) -> TurnDifference | None:
    index = first_turn(before, after)
    if index is None:
        return None
    return TurnDifference(index, _said(before.turns, index), _said(after.turns, index))


def _said(turns: tuple[Turn, ...], index: int) -> str:
    if index >= len(turns):
        return ""
    turn = turns[index]
    calls = (f"{call.name or call.status}: {call.raw}" for call in turn.tool_calls)
    return redact(next(calls, turn.text))[:_SHOWN_CHARS]


def _first_token(before: Trajectory, after: Trajectory) -> TokenDifference | None:
    both = enumerate(zip_longest(before.token_ids, after.token_ids))
    for index, (old, new) in both:
        if old != new:
            masks = (side.loss_mask[index : index + 1] for side in (before, after))
            return TokenDifference(index, old, new, sampled=any(1 in mask for mask in masks))
    return None


def _tests(before: Trajectory, after: Trajectory) -> tuple[Fact, ...]:
    old, new = _statuses(before), _statuses(after)
    names = sorted(old.keys() | new.keys())
    facts = (Fact(name, old.get(name, "–"), new.get(name, "–")) for name in names)
    return tuple(fact for fact in facts if fact.differs)


def _statuses(trajectory: Trajectory) -> dict[str, str]:
    if trajectory.verdict is None:
        return {}
    report = trajectory.verdict.report
    tests = {**report.others, **report.pass_to_pass, **report.fail_to_pass}
    return {name: str(status) for name, status in tests.items()}


def _patch_diff(before: str, after: str) -> tuple[str, ...]:
    old, new = redact(before).splitlines(), redact(after).splitlines()
    if old == new or max(len(old), len(new)) > _DIFFED_LINES:
        return ()
    return tuple(difflib.unified_diff(old, new, "first", "second", n=1, lineterm=""))
