"""Name what a job's folder holds and no result counts: damaged records, strange objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from swe_rollout.cli.output import say
from swe_rollout.store.damage import RERUN
from swe_rollout.text.escaping import one_line

if TYPE_CHECKING:
    from swe_rollout.store.damage import DamagedRecord
    from swe_rollout.types.episode import EpisodeId

_SHOWN = 5


def write_left_out(damaged: Sequence[DamagedRecord], strays: Sequence[str] = ()) -> None:
    """Print a line on stderr for each, the first few of many, and how to run them again."""
    for line in _first(damaged):
        say(f"left out: {line}")
    if damaged:
        say(f"  fix   {RERUN}")
    for line in _first(strays):
        say(f"left out: {line} is no trajectory's name")


def write_not_shown(left_out: Sequence[tuple[EpisodeId, str]]) -> None:
    """Print a line on stderr for each episode that a format can't show, the first few of many."""
    for line in _first([f"{episode}: {why}" for episode, why in left_out]):
        say(f"left out: {line}")


def _first(found: Sequence[object]) -> list[str]:
    more = len(found) - _SHOWN
    lines = [one_line(str(each)) for each in found[:_SHOWN]]
    return lines + ([f"… and {more} more"] if more > 0 else [])
