"""The rows of `conformance tokens`, one for each subject and model.

A model or a peer may raise anything; the error becomes a row and never ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rollout_dev.peers.tokens import Keeper, UnknownFamilyError
from rollout_dev.report import Row
from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import SweRolloutError
from swe_rollout.testing.tokens.conformance import Conformance, check_conformance
from swe_rollout.testing.tokens.model import ModelUnderTest, trained_share_key
from swe_rollout.testing.tokens.subjects import (
    NOISE_LEVELS,
    PrefixStats,
    TokenSubject,
    inject_control_tokens,
    play_conversation,
)

OURS = "swe-rollout"


@dataclass(frozen=True, slots=True)
class Model:
    """A tokenizer to check, and its name in the table."""

    name: str
    path: str


@dataclass(slots=True)
class _Sums:
    """The counts of one subject."""

    turns: int = 0
    breaks: int = 0
    forged: int = 0
    shares: dict[float, PrefixStats] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        shares = {
            trained_share_key(noise): each.kept / each.sampled if each.sampled else 1.0
            for noise, each in self.shares.items()
        }
        return {
            "prefix_breaks": self.breaks,
            "forged_ids": self.forged,
            **shares,
            "turns": self.turns,
            "conversations_failed": len(self.problems),
        }


def rows_of(model: Model, keepers: Sequence[Keeper], *, quick: bool) -> Iterator[Row]:
    """Yield our row and those of the peers."""
    try:
        renderer = Renderer.load(model.path)
        found = check_conformance(renderer, quick=quick)
        stage = ModelUnderTest(renderer, quick=quick)
    except Exception as error:  # noqa: BLE001 - an unknown tokenizer may break anything
        labels = {"tokenizer": model.name, "refused": _message(error)}
        yield Row(OURS, {"checks_failed": 1}, labels)
        return
    yield _own_row(model, stage, found)
    for keeper in keepers:
        yield _peer_row(model, stage, keeper)


def _own_row(model: Model, stage: ModelUnderTest, found: Conformance) -> Row:
    failed = [f"{check.name}: {check.detail}" for check in found.checks if not check.passed]
    measured = {k: v for check in found.checks for k, v in check.figures.items()}
    names = ("prefix_breaks", "forged_ids", *map(trained_share_key, NOISE_LEVELS), "turns")
    figures = {name: measured[name] for name in names if name in measured}
    lost = len(stage.unrenderable)
    checks = {"checks": len(found.checks), "checks_failed": len(failed)}
    return Row(
        OURS,
        {**figures, "conversations_failed": lost, **checks},
        _labels(model, stage, [*failed, *stage.unrenderable]),
    )


def _peer_row(model: Model, stage: ModelUnderTest, keeper: Keeper) -> Row:
    labels = _labels(model, stage, [])
    if keeper.skipped:
        return Row(keeper.name, labels=labels, skipped=keeper.skipped)
    try:
        sums = _measured(stage, keeper.bind(stage.renderer))
    except UnknownFamilyError as error:
        return Row(keeper.name, labels=labels, skipped=f"not for this model: {error}")
    except Exception as error:  # noqa: BLE001 - a peer that breaks is a row
        return Row(keeper.name, labels=labels, skipped=f"it broke: {_message(error)}")
    if not sums.turns:
        return Row(keeper.name, labels=labels, skipped=f"it broke: {sums.problems[0]}")
    return Row(keeper.name, sums.figures(), _labels(model, stage, sums.problems))


def _labels(model: Model, stage: ModelUnderTest, problems: Sequence[str]) -> dict[str, str]:
    family, form = stage.renderer.path.family, stage.renderer.tool_format
    labels = {"family": family, "format": form, "tokenizer": model.name}
    return labels | ({"problems": " | ".join(problems)} if problems else {})


def _measured(stage: ModelUnderTest, start: Callable[[], TokenSubject]) -> _Sums:
    sums = _Sums(shares=dict.fromkeys(NOISE_LEVELS, PrefixStats()))
    for conversation in stage.conversations:
        try:
            for noise in NOISE_LEVELS:
                for seed in range(stage.repeats):
                    turns = tuple(map(stage.noisy(noise, seed), conversation.turns))
                    played = play_conversation(start(), conversation.first, turns)
                    sums.shares[noise] += played
                    sums.turns += played.turns
                    sums.breaks += played.breaks
        except Exception as error:  # noqa: BLE001 - a conversation that a peer fails on
            sums.problems.append(f"{conversation.pattern.name}: {_message(error)}")
    try:
        sums.forged = _forged(stage, start)
    except Exception as error:  # noqa: BLE001 - likewise
        sums.problems.append(f"control tokens: {_message(error)}")
    return sums


def _forged(stage: ModelUnderTest, start: Callable[[], TokenSubject]) -> int:
    turn = stage.conversations[0].turns[0]
    return inject_control_tokens(
        start,
        turn,
        first=stage.conversations[0].first,
        controls=stage.renderer.controls,
        delta=stage.turn_separator(turn),
    ).forged


def _message(error: Exception) -> str:
    if isinstance(error, SweRolloutError):
        return str(error)
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]
