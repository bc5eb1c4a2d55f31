"""ForkPoint: a recorded turn, from which the episodes of a job begin.

To fork is to resume under another address: the agent program runs from its beginning and is given
the answers of the first turns of another episode, in a sandbox with the files that these left. The
turn after them is asked of the engine, with the fork's own seed.
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
    """A turn of a committed episode, and all that came before it."""

    episode: EpisodeId
    """The episode that is forked."""
    job_uri: str
    turn: int
    """The first turn that is not inherited."""
    digest: str
    """SHA-256 of the journal that was kept."""
    header: Header
    """The header of the forked episode's journal."""
    stretches: tuple[Stretch, ...]
    """What is inherited."""
    trains_inherited: bool = False

    def __repr__(self) -> str:
        return f"<ForkPoint {self}>"

    def __str__(self) -> str:
        return f"{self.episode}, turn {self.turn}"

    @property
    def key(self) -> str:
        """The identity of what is inherited."""
        return f"{self.digest}@{self.turn}"

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The answers that are inherited."""
        return tuple(chain.from_iterable(each.entries for each in self.stretches))

    @property
    def deltas(self) -> tuple[Delta, ...]:
        """The changes of the sandbox that are inherited, in their order."""
        return tuple(chain.from_iterable(each.deltas for each in self.stretches))

    def earlier(self, ref: JournalRef) -> Earlier:
        """Return what is inherited as an earlier life of an episode, which has written nothing."""
        return Earlier(ref, self.header, self.entries, self.deltas, None, 0, is_closed=False)

    def before(self, own: Earlier) -> Earlier:
        """Return a fork's journal with what it inherited in front of it."""
        return replace(own, entries=self.entries + own.entries, deltas=self.deltas + own.deltas)

    def record(self, turns: Sequence[Turn], main: Branch) -> ForkedFrom:
        """Return what a record says of where its episode began."""
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
        """What the sandbox of a fork lacks: files that were not saved, running processes."""
        return (*unsaved_in(self.deltas), *running_in(self.deltas))

    def refused(self, error: DivergedError) -> UsageError:
        """Return the error for a program that does not do what it did before the turn."""
        return UsageError(
            f"{self} can't be forked here",
            why=error.why,
            fix="fork with the program, tools and versions that the episode was played with, and "
            "in sandboxes of its kind; a program that draws random numbers can't be forked",
        )
