"""Record what a trainer did with the groups of a job: claimed, trained, released.

Each group has a list of steps, one object each, numbered from 1. A step is written by conditional
create under the next number, so that of several processes that continue from the same state one
succeeds, and nothing is ever changed or deleted:

    (none) ─▶ claimed ─▶ trained           the trainer acknowledged it
                │  ▲────▶ skipped           it was not worth training on
                │  └──── released ◀─┐       given back, for anyone to claim
                ├───────────────────┘
                └─▶ claimed                 by a later epoch: the earlier one is dead
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from swe_rollout.errors import SweRolloutError, UsageError, gather_all
from swe_rollout.store import layout
from swe_rollout.store.bucket import Bucket
from swe_rollout.store.damage import UNDECODABLE

_AT_A_TIME = 64
_NEVER = 1 << 62
"""The epoch of an unreadable step: no later epoch can take its group."""


class ClaimState(StrEnum):
    """What a step did."""

    CLAIMED = "claimed"
    TRAINED = "trained"
    SKIPPED = "skipped"
    RELEASED = "released"


class ClaimLostError(SweRolloutError):
    """A group was claimed, and then taken by another process of the trainer."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """A process of a trainer."""

    trainer: str
    """The training run: no two processes of the same run get the same group."""
    epoch: int = 0
    """Counts the starts of the trainer. A later epoch takes groups that earlier ones claimed but
    did not finish; processes of the same epoch never take each other's."""
    process: str = field(
        default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    )
    """Identifies this process, also for people."""

    def __post_init__(self) -> None:
        layout.segment(self.trainer)
        if not 0 <= self.epoch < _NEVER:
            raise UsageError(f"the epoch {self.epoch} is none", fix="count from 0 upwards")


@dataclass(frozen=True, slots=True)
class Claim:
    """A trainer's last step with a group."""

    instance: str
    number: int
    state: ClaimState
    epoch: int
    process: str
    at: str
    """Time of the step by the process's clock, in UTC, as RFC 3339."""
    note: str = ""


class Claims:
    """One trainer's steps with the groups of a job, as one of its processes sees them.

    Listing costs one request per 1,000 steps; a step is read once, while it is its group's last.
    """

    def __init__(self, bucket: Bucket, job: str, claimant: Claimant) -> None:
        self._bucket = bucket
        self._job = job
        self._me = claimant
        self._last: dict[str, Claim] = {}

    async def refresh(self) -> None:
        """Read the steps that were taken since the last call."""
        numbers: dict[str, int] = {}
        async for key in self._bucket.keys(layout.claims_prefix(self._job, self._me.trainer)):
            if (found := layout.parse_claim_key(key)) is not None:
                instance, number = found
                numbers[instance] = max(number, numbers.get(instance, 0))
        for instance in self._last.keys() - numbers.keys():
            del self._last[instance]  # somebody deleted its steps: start over
        changed = [each for each, number in numbers.items() if number != self._number(each)]
        for start in range(0, len(changed), _AT_A_TIME):
            some = changed[start : start + _AT_A_TIME]
            steps = await gather_all(self._read(each, numbers[each]) for each in some)
            self._last.update(zip(some, steps, strict=True))

    def all(self) -> tuple[Claim, ...]:
        """Return the last known step with each group, by instance."""
        return tuple(step for _, step in sorted(self._last.items()))

    def is_free(self, instance: str) -> bool:
        """Whether the group may be claimed, as far as known."""
        step = self._last.get(instance)
        if step is None or step.state is ClaimState.RELEASED:
            return True
        return step.state is ClaimState.CLAIMED and step.epoch < self._me.epoch

    async def claim(self, instance: str) -> Claim | None:
        """Claim a group; return None if it is not free or another process was first."""
        if not self.is_free(instance):
            return None
        step = self._step(instance, ClaimState.CLAIMED)
        return step if await self._write(step) else None

    async def finish(self, claim: Claim, state: ClaimState, *, note: str = "") -> None:
        """Write the step that follows a claim of this process.

        Raises ClaimLostError when another process has claimed the group since.
        """
        number = claim.number + 1
        step = replace(self._step(claim.instance, state, note=note), number=number)
        if await self._write(step):
            return
        now = self._last[claim.instance]
        if now.state is state is ClaimState.TRAINED:
            return  # another process found it in the checkpoint before this one recorded it
        raise ClaimLostError(
            f"{self._job}/{claim.instance} is not this process's any more",
            why=f"{now.process} of epoch {now.epoch} has {now.state} it at {now.at}",
            fix="leave out its update, or go on from a checkpoint before it; only one epoch of a "
            "trainer may run at a time",
        )

    async def settle(self, instances: Iterable[str]) -> None:
        """Mark the groups in a checkpoint as trained, whatever was recorded."""
        for instance in instances:
            while not self._is_trained(instance):
                await self._write(self._step(instance, ClaimState.TRAINED, note="checkpoint"))

    def _is_trained(self, instance: str) -> bool:
        step = self._last.get(instance)
        return step is not None and step.state is ClaimState.TRAINED

    def _number(self, instance: str) -> int:
        step = self._last.get(instance)
        return 0 if step is None else step.number

    def _step(self, instance: str, state: ClaimState, *, note: str = "") -> Claim:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        number = self._number(instance) + 1
        return Claim(instance, number, state, self._me.epoch, self._me.process, now, note)

    async def _write(self, step: Claim) -> bool:
        """Write a step; return whether its number now holds this step."""
        key = layout.claim_key(self._job, self._me.trainer, step.instance, step.number)
        is_written = await self._bucket.create(key, msgspec.json.encode(step))
        # An attempt without a response may have succeeded: then the object is this step.
        there = step if is_written else await self._read(step.instance, step.number)
        self._last[step.instance] = there
        return there == step

    async def _read(self, instance: str, number: int) -> Claim:
        key = layout.claim_key(self._job, self._me.trainer, instance, number)
        try:
            step = msgspec.json.decode(await self._bucket.get(key), type=Claim)
            return replace(step, instance=instance, number=number)
        except (FileNotFoundError, *UNDECODABLE) as error:
            # What was done with the group is unknown, so it is not handed out again.
            why = f"{type(error).__name__}: {error}"[:200]
            return Claim(instance, number, ClaimState.CLAIMED, _NEVER, "unreadable", "", why)
