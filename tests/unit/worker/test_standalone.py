"""Single sandboxes: they share a provider, which ends with the last of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import SandboxRequest
from swe_rollout.spec.sandbox import LocalSandbox, PodSandbox, SandboxSpec
from swe_rollout.types.episode import EpisodeId
from swe_rollout.worker.sandboxes import SandboxSetup
from swe_rollout.worker.standalone import Wanted, open_sandbox, start_sandbox
from unit.worker.work_parts import TableSandbox

LOCAL = SandboxSpec(local=LocalSandbox())
POD = SandboxSpec(pod=PodSandbox())


@dataclass
class Counting:
    """Starts sandboxes, and counts."""

    refuses: bool = False
    hangs: bool = False
    requests: list[SandboxRequest] = field(default_factory=list)
    ended: int = 0

    async def start(self, request: SandboxRequest) -> TableSandbox:
        self.requests.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        if self.refuses:
            raise SandboxError("no room")
        return TableSandbox()

    def prewarm(self, requests: Iterable[SandboxRequest]) -> None:
        raise NotImplementedError

    async def delete_orphans(self, episodes: Collection[EpisodeId]) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.ended += 1


@dataclass
class Opened:
    """The providers that were opened, in order, and what for."""

    providers: list[Counting] = field(default_factory=list)
    setups: list[SandboxSetup] = field(default_factory=list)
    refuses: bool = False
    hangs: bool = False

    def __call__(self, spec: SandboxSpec, setup: SandboxSetup, stack: AsyncExitStack) -> Counting:
        del spec
        self.setups.append(setup)
        self.providers.append(Counting(self.refuses, self.hangs))
        stack.push_async_callback(self.providers[-1].aclose)
        return self.providers[-1]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    found = Opened()
    monkeypatch.setattr("swe_rollout.worker.sandboxes.open_sandboxes", found)
    return found


async def test_sandboxes_of_one_spec_share_a_provider_until_the_last_ends(opened: Opened) -> None:
    one, two = await asyncio.gather(
        start_sandbox(LOCAL, Wanted("a", "/w", lifetime_s=9.0)), start_sandbox(LOCAL, Wanted("b"))
    )
    (provider,) = opened.providers
    first, second = provider.requests
    assert (first.image, first.workdir, first.deadline_s) == ("a", "/w", 9.0)
    assert first.episode != second.episode
    assert one.id != two.id
    await one.close()
    await one.close()
    assert provider.ended == 0
    await two.close()
    assert provider.ended == 1
    async with open_sandbox(LOCAL, Wanted("a")):
        assert len(opened.providers) == 2
    assert opened.providers[1].ended == 1


async def test_another_spec_or_other_commands_have_a_provider_of_their_own(opened: Opened) -> None:
    async with (
        open_sandbox(LOCAL, Wanted("a")),
        open_sandbox(LOCAL, Wanted("a", harmless=True)),
        open_sandbox(POD, Wanted("a")),
    ):
        assert [setup.harmless for setup in opened.setups] == [False, True, False]
        assert len({setup.job for setup in opened.setups}) == 3


async def test_a_start_that_fails_leaves_nothing(opened: Opened) -> None:
    opened.refuses = True
    with pytest.raises(SandboxError, match="no room"):
        await start_sandbox(LOCAL, Wanted("a"))
    assert opened.providers[0].ended == 1


async def test_a_start_that_is_cancelled_leaves_nothing(opened: Opened) -> None:
    opened.hangs = True
    task = asyncio.create_task(start_sandbox(LOCAL, Wanted("a")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert opened.providers[0].ended == 1


async def test_a_close_that_is_cancelled_still_closes(opened: Opened) -> None:
    started = await start_sandbox(LOCAL, Wanted("a"))
    closing = asyncio.create_task(started.close())
    await asyncio.sleep(0)
    closing.cancel()
    await started.close()
    assert opened.providers[0].ended == 1


def test_each_event_loop_has_a_provider_of_its_own(opened: Opened) -> None:
    async def leave_open() -> None:
        await start_sandbox(LOCAL, Wanted("a"))

    for _ in range(2):
        asyncio.run(leave_open())
    assert len(opened.providers) == 2
