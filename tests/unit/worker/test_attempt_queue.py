"""The attempts that wait are listed when their turn comes, and never lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from swe_rollout.context import Attempt
from swe_rollout.worker.attempts import AttemptQueue
from unit.worker.worker_parts import attempts


@dataclass
class Endless:
    """A number of attempts that nobody could list, and how many were."""

    listed: list[Attempt] = field(default_factory=list)

    def __len__(self) -> int:
        return 10**15

    def __iter__(self) -> Iterator[Attempt]:
        while True:
            self.listed += attempts(1)
            yield self.listed[-1]


def test_attempts_come_in_order_and_one_that_returns_is_first() -> None:
    queue = AttemptQueue()
    one, two, three = attempts(3)
    queue.add([one, two])
    queue.add([three])
    assert queue.peek(2) == (one, two)
    assert (queue.pop(), len(queue)) == (one, 2)
    queue.put_back(one)
    assert queue.peek(9) == (one, two, three)
    assert [queue.pop() for _ in range(len(queue))] == [one, two, three]
    assert not queue
    assert queue.peek(1) == ()


def test_only_what_is_looked_at_is_listed() -> None:
    queue, endless = AttemptQueue(), Endless()
    queue.add(endless)
    assert len(queue) == 10**15
    queue.peek(4)
    queue.pop()
    assert len(endless.listed) == 4
    assert len(queue.peek(0)) == 0
