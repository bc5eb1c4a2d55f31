"""Group failures that say the same, for every place that lists what failed in a job.

Messages that differ only in paths and in words with digits (names of pods, times, addresses) are
the same failure; other fixes, exit codes, HTTP statuses and lines of the user's code are others.
Memory is bounded, whatever a job's messages are.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from swe_rollout.errors import Boundary
from swe_rollout.text.escaping import one_line
from swe_rollout.types.episode import EpisodeId, Failure

MOST_GROUPS: Final = 100
"""Further messages are counted together by owner."""
_CHARS: Final = 500
"""The most characters of a message and of a fix."""
_VARYING: Final = re.compile(r"(?<!\S)(?<!exit code )(?<!HTTP )(?!\(\w+\.py:\d+:)\S*[/\d]\S*")
"""Words that differ between failures of one cause; it reads each word once."""
_OTHERS: Final = "other messages"
_FIXES: Final = {
    Boundary.ENGINE: "look at the engine's log; `swe-rollout engine status URL` says if it is up",
    Boundary.SANDBOX: "look at image and node; `swe-rollout doctor` checks what sandboxes need",
    Boundary.CLUSTER: "`swe-rollout doctor` checks the cluster and your rights",
    Boundary.GRADER: "`swe-rollout regrade` when the cause is gone; `validate` tries the tests",
    Boundary.STORE: "check the store's address and credentials",
    Boundary.DATASET: "correct the task's row; `swe-rollout validate` tries it",
    Boundary.EXTENSION: "correct your code, then `swe-rollout run --rerun-masked`",
    Boundary.INTERNAL: "report it, with the log (`-v`)",
}
"""What to do where the error itself does not say."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failures of one owner that say the same."""

    owner: Boundary
    type: str
    message: str
    """That of the example."""
    count: int
    example: str
    """An episode, as `job/instance/sample`."""
    fix: str
    """What to do."""


@dataclass(slots=True)
class FailureGroups:
    """Groups failures as they arrive."""

    _counts: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _examples: dict[tuple[str, ...], FailureGroup] = field(default_factory=dict)

    def add(self, episode: EpisodeId, failure: Failure) -> None:
        """Count the failure of an episode."""
        message = _start_of(failure.message)
        fix = _start_of(failure.fix) or _FIXES[failure.boundary]
        texts = (_start_of(failure.type), *(_VARYING.sub("#", text) for text in (message, fix)))
        key: tuple[str, ...] = (failure.boundary, *texts)
        if key not in self._examples and len(self._examples) >= MOST_GROUPS:
            key, message = (failure.boundary, _OTHERS), _OTHERS
        self._counts[key] += 1
        if key not in self._examples:
            self._examples[key] = FailureGroup(
                failure.boundary, _start_of(failure.type), message, 0, str(episode), fix
            )

    def ranked(self) -> tuple[FailureGroup, ...]:
        """Return the groups, the most frequent first."""
        return tuple(
            replace(self._examples[key], count=count) for key, count in self._counts.most_common()
        )


def _start_of(text: str) -> str:
    """Return the first characters of a text that may be untrusted, as one line."""
    line = one_line(text[: 4 * _CHARS])
    return line if len(line) <= _CHARS else f"{line[:_CHARS]}…"
