"""The pipes of a sandbox's process: what it writes to stderr can neither block nor burden us."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.local.pipe_channel import PipeChannel, RecentEvidence

pytestmark = pytest.mark.threat(point=6)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def reason(script: str) -> str:
    channel = await PipeChannel.start([sys.executable, "-c", script], env={})
    with pytest.raises(SandboxError) as caught:
        await channel.receive()
    await channel.close()
    return caught.value.why


async def test_the_end_of_the_error_stream_is_the_reason() -> None:
    script = "import sys; sys.stderr.write('x' * 5000 + ' no such mount'); sys.exit(3)"
    why = await reason(script)
    assert why.startswith("its process ended with code 3.")
    assert why.endswith("no such mount")
    assert len(why) < 600


async def test_an_error_stream_without_end_stops_its_writer_and_not_us() -> None:
    script = (
        "import os\n"
        "try:\n    while True: os.write(2, bytes(1 << 16))\n"
        "except BlockingIOError: os._exit(4)\n"
    )
    assert "code 4" in await reason(script)


async def test_the_error_stream_is_no_file_that_can_be_made_longer() -> None:
    script = (
        "import os, sys\n"
        "try: os.ftruncate(2, 1 << 40)\n"
        "except OSError as error: sys.exit(error.errno)\n"
    )
    assert f"code {22}" in await reason(script)


async def test_a_program_that_is_missing_leaves_nothing() -> None:
    ended: list[str] = []

    async def end() -> None:
        ended.append("yes")

    before = descriptors()
    with pytest.raises(FileNotFoundError):
        await PipeChannel.start(["/does/not/exist"], env={}, at_end=end)
    assert ended == ["yes"]
    assert descriptors() == before


async def test_without_a_descriptor_to_spare_what_was_prepared_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []

    async def end() -> None:
        ended.append("yes")

    def pipe2(_: int) -> tuple[int, int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pipe2", pipe2)
    with pytest.raises(OSError, match="Too many"):
        await PipeChannel.start(["cat"], env={}, at_end=end)
    assert ended == ["yes"]


async def test_closing_twice_ends_once_and_closes_every_descriptor() -> None:
    ended: list[str] = []

    async def end() -> None:
        ended.append("yes")

    before = descriptors()
    channel = await PipeChannel.start(["cat"], env=dict(os.environ), at_end=end)
    await channel.close()
    await channel.close()
    assert ended == ["yes"]
    assert descriptors() == before


@pytest.mark.parametrize(
    ("looks", "lost_at", "found"),
    [
        ([(0.0, "")], 9.0, "killed 1"),
        ([], 9.0, "killed 1"),
        ([(0.0, ""), (8.9, "killed 1")], 9.0, "killed 1"),
        ([(0.0, ""), (1.0, "killed 1")], 9.0, ""),
        ([(0.0, ""), (1.0, "killed 1"), (8.9, "killed 1")], 9.0, ""),
        ([(0.0, "killed 0"), (1.0, "killed 2"), (8.9, "killed 1")], 9.0, "killed 1"),
    ],
)
def test_evidence_of_long_ago_is_none(
    looks: list[tuple[float, str]], lost_at: float, found: str
) -> None:
    """Issue 16, point 4: a command that was killed for memory does not explain a later loss."""
    now = [""]
    recent = RecentEvidence(lambda: now[0])
    for at, text in looks:
        now[0] = text
        recent.look(at)
    now[0] = "killed 1"
    assert recent.since_last(lost_at) == found


def test_what_is_kept_of_evidence_is_bounded() -> None:
    count = iter(range(100_000))
    recent = RecentEvidence(lambda: str(next(count)))
    for each in range(10_000):
        recent.look(each / 10)
    assert len(recent._seen) < 10
