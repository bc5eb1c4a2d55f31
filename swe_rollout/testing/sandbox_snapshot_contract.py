"""The contract of sandboxes with snapshots as tests: subclass `SnapshotContract`.

Override the fixture `start`: a function that starts a fresh sandbox of one image each time, with
`SandboxRequest.snapshots`. Needs pytest with pytest-asyncio in auto mode, and hypothesis. The image
needs a POSIX shell and the tools of busybox.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Sandbox, Snapshots


@runtime_checkable
class SnapshotSandbox(Sandbox, Snapshots, Protocol):
    """A sandbox with snapshots."""


Start: TypeAlias = Callable[[], Awaitable[Sandbox]]

NAMES = ("a", "b", "sub", "sub/x", "sub/deep/er", "-n *", "new\nline", "é\udcff", "x" * 255)
_DIGEST = (
    "find . -exec stat -c '%n|%f|%u|%y|%N' {} + | sort; "
    "find . -type f -exec stat -c '%n %s' {} + | sort; "
    "find . -type f -exec md5sum {} + | sort"
)
_EMPTY = "chmod -R u+rwx .; find . -mindepth 1 -delete"


def _never_opening_a_fifo(step: str) -> str:
    """Return the step with a guard against opening a FIFO, which would wait for the other end."""
    if not step.startswith("OPEN "):
        return step
    return "[ -p {0} ] || [ -p {1} ] || {{ " + step.removeprefix("OPEN ") + "; }}"


def _operations() -> st.SearchStrategy[str]:
    """Return a strategy of shell commands that change files in different ways; some fail."""
    name = st.sampled_from(NAMES).map(lambda each: shlex.quote(f"./{each}"))
    text = st.sampled_from(("one", "two", "other", "")).map(shlex.quote)
    one = st.sampled_from(
        (
            "mkdir -p {0}",
            "mkdir -p ./sub/deep; [ -p {0} ] || echo new >{0}",
            "OPEN printf %s {2} >{0}",
            "OPEN printf %s {2} >>{0}",
            "OPEN printf X | dd of={0} bs=1 seek=1 conv=notrunc",
            # Neither size nor mtime changes.
            "OPEN touch -r {0} ./r && printf Y | dd of={0} bs=1 conv=notrunc && touch -r ./r {0}",
            "OPEN : >{0}",
            "[ -d {0} ] || chmod 600 {0}",
            "chmod 750 {0}",
            "chmod u-w {0}",
            "mv {0} {1}",
            "mv {0} ./moved; mv {1} {0}; mv ./moved {1}",
            "rm -rf {0}",
            "rm -rf {0}; ln -s {1} {0}",
            "rm -rf {0}; mkdir {0}; echo in >{0}/in",
            "rm -rf {0}; echo file >{0}",
            "ln {0} {1}",
            "OPEN cp -R {0} {1}",
            "rm -rf {0}; mkfifo {0}",
            "touch -t 200102030405 {0}",
        )
    ).map(_never_opening_a_fifo)
    return st.builds(str.format, one, name, name, text)


async def _digest(sandbox: Sandbox) -> bytes:
    result = await sandbox.exec(["/bin/sh", "-c", _DIGEST], max_output=8 << 20)
    assert not result.stderr, result.stderr
    return result.stdout


async def _started(start: Start) -> SnapshotSandbox:
    sandbox = await start()
    assert isinstance(sandbox, SnapshotSandbox)
    return sandbox


class SnapshotContract:
    """The contract of `Snapshots`. Override the fixture `start`."""

    sees_processes: ClassVar[bool] = True
    """Whether the sandbox's processes are separate from those of the machine."""

    @pytest.fixture
    def start(self) -> Start:
        """Start a fresh sandbox of the same image; the fixture ends all of them."""
        raise NotImplementedError("override the fixture `start`")

    @pytest.fixture
    def pair(self) -> list[SnapshotSandbox]:
        """The two sandboxes that all examples of a property share, once started."""
        return []

    async def test_nothing_has_changed_at_first(self, start: Start) -> None:
        sandbox = await _started(start)
        for number in (1, 2):
            delta = await sandbox.changes()
            assert (delta.number, delta.data, delta.files, delta.removed) == (number, b"", 0, 0)
            assert not delta

    @settings(
        max_examples=25,
        deadline=None,
        # Each example removes what the last one left, so that the same sandboxes serve all.
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(batches=st.lists(st.lists(_operations(), min_size=1, max_size=6), max_size=5))
    async def test_every_change_of_files_is_restored(
        self, start: Start, pair: list[SnapshotSandbox], batches: list[list[str]]
    ) -> None:
        while len(pair) < 2:
            pair.append(await _started(start))
        source, target = pair
        for batch in ([_EMPTY], *batches):
            script = "\n".join(f"{{ {each}; }} 2>/dev/null" for each in batch)
            assert not (await source.exec(["/bin/sh", "-c", script])).timed_out
            delta = await source.changes()
            assert delta.unsaved == ()
            await target.apply(delta)
            assert await _digest(target) == await _digest(source), batches
            assert not await target.changes()
            assert not await source.changes()

    async def test_a_fresh_sandbox_gets_one_delta_after_the_other(self, start: Start) -> None:
        source = await _started(start)
        deltas = []
        for step in (
            "mkdir -p d/e; echo 1 >d/e/f",
            "echo 2 >>d/e/f; mv d g",
            "ln g/e/f h; rm g/e/f",
        ):
            await source.exec(step)
            deltas.append(await source.changes())
        target = await _started(start)
        for delta in deltas:
            await target.apply(delta)
        assert await _digest(target) == await _digest(source)
        assert await target.read_file("h") == b"1\n2\n"
        later = await target.changes()
        assert (later.number, bool(later)) == (4, False)

    async def test_folders_outside_of_the_workdir_are_restored(self, start: Start) -> None:
        source, target = await _started(start), await _started(start)
        await source.exec('echo temporary >"${TMPDIR:-/tmp}/t"; echo home >"$HOME/h"')
        await target.apply(await source.changes())
        result = await target.exec('cat "${TMPDIR:-/tmp}/t" "$HOME/h"')
        assert result.stdout == b"temporary\nhome\n"

    async def test_names_of_one_file_stay_one_file(self, start: Start) -> None:
        source, target = await _started(start), await _started(start)
        await source.exec("echo x >first; mkdir s; ln first s/second; ln first third")
        await target.apply(await source.changes())
        await target.exec("echo y >>third")
        assert await target.read_file("first") == b"x\ny\n"
        assert await target.read_file("s/second") == b"x\ny\n"

    async def test_a_delta_can_be_asked_for_again_until_the_next_but_one(
        self, start: Start
    ) -> None:
        source, target = await _started(start), await _started(start)
        await source.write_file("one", b"1")
        lost = await source.changes()
        await source.write_file("two", b"2")
        again = await source.changes(since=lost.number - 1)
        assert (again.number, again.files) == (lost.number, lost.files + 1)
        await target.apply(again)
        assert await _digest(target) == await _digest(source)
        assert not await source.changes(since=again.number)
        assert not await source.changes()
        with pytest.raises(SandboxError) as caught:
            await source.changes(since=0)
        assert "moments" in caught.value.why

    async def test_sparse_files_stay_sparse_and_large_ones_are_reported(self, start: Start) -> None:
        source, target = await _started(start), await _started(start)
        await source.exec(
            "truncate -s 1099511627776 sparse && printf x | dd of=sparse bs=1 conv=notrunc"
        )
        await source.exec("head -c 40000000 /dev/zero | tr '\\0' x >large; echo small >small")
        delta = await source.changes()
        assert [each.rpartition("/")[2] for each in delta.unsaved] == ["large: it is too large"]
        await target.apply(delta)
        result = await target.exec("stat -c %s sparse; head -c 2 sparse | tr -d '\\0'; cat small")
        assert result.stdout == b"1099511627776\nxsmall\n"
        with pytest.raises(FileNotFoundError):
            await target.read_file("large")

    async def test_a_sandbox_in_which_nothing_was_left_running_can_be_carried_whole(
        self, start: Start
    ) -> None:
        source = await _started(start)
        await source.exec("echo x >file")
        delta = await source.changes()
        assert (delta.unsaved, delta.processes) == ((), ())

    async def test_what_can_not_be_carried_is_said(self, start: Start) -> None:
        source = await _started(start)
        many = "n=0; while [ $n -lt 300 ]; do mkdir d && cd d || exit; n=$((n + 1)); done"
        await source.exec(f"({many}); echo x >fine; sleep 1234 & true")
        delta = await source.changes()
        assert len(delta.unsaved) == 1
        assert delta.unsaved[0].endswith(": it is too deep")
        assert any("sleep 1234" in each for each in delta.processes) == self.sees_processes
        target = await _started(start)
        await target.apply(delta)
        assert await target.read_file("fine") == b"x\n"

    async def test_files_that_change_all_the_time_delay_nothing(self, start: Start) -> None:
        source, target = await _started(start), await _started(start)
        step = "echo x >>log; mkdir -p d/e; echo y >d/e/f; rm -r d; mv log l; mv l log"
        await source.exec(f"(while :; do {step}; done) >/dev/null 2>&1 &")
        for _ in range(10):
            await target.apply(await source.changes())
        await source.end_processes()
        await target.apply(await source.changes())
        assert await _digest(target) == await _digest(source)

    async def test_a_damaged_delta_is_an_error(self, start: Start) -> None:
        source, target = await _started(start), await _started(start)
        await source.write_file("file", b"content")
        delta = await source.changes()
        for data in (delta.data[:-1], delta.data + b"x", delta.data[5:], b"no delta at all"):
            with pytest.raises(SandboxError):
                await target.apply(replace(delta, data=data))
        await target.apply(delta)
        assert await target.read_file("file") == b"content"

    async def test_calls_take_turns(self, start: Start) -> None:
        source = await _started(start)
        await source.write_file("file", b"content")
        deltas = await asyncio.gather(*(source.changes() for _ in range(5)))
        assert sorted(each.number for each in deltas) == [1, 2, 3, 4, 5]
        assert sum(map(bool, deltas)) == 1
