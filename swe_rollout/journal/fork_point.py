"""ForkPoint: a recorded turn from which the episodes of a job start.

Forking is resuming under another address: the agent program runs from the start and receives the
recorded responses of another episode's first turns, in a sandbox with the files that these left.
The engine then samples the next turn, with the fork's own seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from swe_rollout.errors import UsageError
from swe_rollout.journal.entries import Delta, Entry, Header
from swe_rollout.journal.kept import Stretch
from swe_rollout.journal.reading import Earlier, running_in, unsaved_in
from swe_rollout.journal.tape import DivergedError
from swe_rollout.store.journals import JournalRef
from swe_rollout.tokens.branch import Branch
from swe_rollout.types.episode import EpisodeId, ForkedFrom
from swe_rollout.types.turn import Turn


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """A turn of a committed episode, and everything before it."""

    episode: EpisodeId
    """The forked episode."""
    job_uri: str
    turn: int
    """The first turn that is not inherited."""
    digest: str
    """SHA-256 of the kept journal."""
    header: Header
    """The header of the forked episode's journal."""
    stretches: tuple[Stretch, ...]
    """The inherited stretches."""
    trains_inherited: bool = False

    def __repr__(self) -> str:
        return f"<ForkPoint {self}>"

    def __str__(self) -> str:
        return f"{self.episode}, turn {self.turn}"

    @property
    def key(self) -> str:
        """The identity of the inherited part."""
        return f"{self.digest}@{self.turn}"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The inherited responses."""
        return tuple(chain.from_iterable(each.entries for each in self.stretches))

    @property
    def deltas(self) -> tuple[Delta, ...]:
        """The inherited changes of the sandbox, in order."""
        return tuple(chain.from_iterable(each.deltas for each in self.stretches))

    def earlier(self, ref: JournalRef) -> Earlier:
        """Return the inherited part as the earlier life of an episode that has written nothing."""
        return Earlier(ref, self.header, self.entries, self.deltas, None, 0, is_closed=False)

    def before(self, own: Earlier) -> Earlier:
        """Return a fork's journal with the inherited part prepended."""
        return replace(own, entries=self.entries + own.entries, deltas=self.deltas + own.deltas)

    def record(self, turns: Sequence[Turn], main: Branch) -> ForkedFrom:
        """Return the entry in a record that says where its episode started."""
        following = turns[self.turn] if len(turns) > self.turn else None
        is_known = following is not None and following.branch == 0
        length = following.request.length if following and is_known else len(main.token_ids)
        return ForkedFrom(
            episode=str(self.episode),
            job_uri=self.job_uri,
            turn=self.turn,
            digest=self.digest,
            tokens=length,
            sampled=sum(main.loss_mask[:length]),
            trained=self.trains_inherited,
            lost=self.lost,
        )

    @property
    def lost(self) -> tuple[str, ...]:
        """What a fork's sandbox lacks: unsaved files and running processes."""
        return (*unsaved_in(self.deltas), *running_in(self.deltas))

    def refused(self, error: DivergedError) -> UsageError:
        """Return the error for a program that does not repeat what it did before the turn."""
        return UsageError(
            f"{self} can't be forked here",
            why=error.why,
            fix="fork with the program, tools and versions that the episode was played with, and "
            "in sandboxes of its kind; a program that draws random numbers can't be forked",
        )
