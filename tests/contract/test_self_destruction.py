"""A policy can't make its sandbox look broken: whatever it does to it is a result, or evidence.

An error without evidence breaks the episode off without a reward, and begins another attempt: what
a policy that did badly would want. So each attack here ends in results, in errors of the file
system, or in a `SandboxDestroyedError`.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.errors import SandboxDestroyedError, SandboxError
from swe_rollout.sandbox.base import ExecResult, Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap, cgroups
from swe_rollout.sandbox.local.images import image_folder
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.session import session
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId, StopReason
from tree_images import make_tree_image
from unit.agent.agent_parts import bash
from unit.journal.journal_parts import ATTEMPT, TASK, Engine, Life

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs bubblewrap: apt-get install bubblewrap"
)
_REQUEST = SandboxRequest(EpisodeId("job", "one", 0), Role.AGENT, "broken:1", "/testbed")
_SURVIVED = {
    "signals to process 1": "for s in KILL STOP TERM SEGV USR1 RTMIN; do kill -$s 1; done",
    "signals to everything": "kill -9 -1; kill -STOP -1",
    "kills everything all the time": "setsid sh -c 'while :; do kill -9 -1; done' & sleep 0.3",
    "stops everything all the time": "setsid sh -c 'while :; do kill -STOP -1; done' & sleep 0.3",
    "processes up to the limit": "for i in $(seq 200); do setsid sleep 300 & done; sleep 0.1",
    "descriptors of the supervisor": "for f in 0 1 2 3 4 5 6 7; do exec 9<>/proc/1/fd/$f; done",
    "limits of the supervisor": "prlimit --pid 1 --nofile=3:3 --cpu=1:1",
    "priority of the supervisor": "renice 19 1; chrt -i -p 0 1; "
    "for i in $(seq 40); do setsid sh -c 'while :; do :; done' & done",
    "a full disk": "head -c 999M /dev/zero >/tmp/big; head -c 999M /dev/zero >/testbed/big",
    "no inodes": "mkdir /tmp/i; cd /tmp/i; i=0; while :>f$i; do i=$((i + 1)); done",
    "memory of a command": "perl -e '$x = 1 x (900 << 20)'",
    "no files of its own": "rm -rf /testbed /tmp/* /root/* /run/*; ln -s /dev/zero /testbed/file",
}
_SPARED = """\
head -c 100M /dev/zero >/dev/shm/x
for i in $(seq 12); do
    sh -c 'echo 0 >/proc/self/oom_score_adj; exec perl -e "\\$x = 1 x (60 << 20); sleep"' &
done
wait
"""
"""Fills the memory with processes that the kernel spares: it takes process 1."""
_FOLLOW = ("echo after", "read", "write", "/proc/self/mem", "/dev/zero", "end", "echo again")


@pytest.fixture
async def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalProvider]:
    monkeypatch.setattr(session, "_FILE_S", 3.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_tree_image(_REQUEST.image, tmp_path / "images")
    limits = {"memory": "512Mi", "disk": "128Mi", "processes": 128}
    spec = LocalSandbox.model_validate({**limits, "images": str(tmp_path / "images")})
    provider = LocalProvider(spec)
    yield provider
    await provider.aclose()


async def _step(sandbox: Sandbox, step: str) -> ExecResult | None:
    """What tools and the harness do. Raises SandboxError when the sandbox counts as lost."""
    try:
        match step:
            case "read":
                await sandbox.read_file("file")
            case "write":
                await sandbox.write_file("other", b"x")
            case "end":
                await sandbox.end_processes()
            case path if path.startswith("/"):
                await sandbox.read_file(path, max_bytes=1 << 20)
            case command:
                return await sandbox.exec(command, timeout_s=4, cwd="/")
    except OSError:
        pass
    return None


@pytest.mark.threat(point=6)
@pytest.mark.parametrize("name", _SURVIVED, ids=lambda name: name.replace(" ", "-"))
async def test_a_policy_that_breaks_its_sandbox_gets_results(
    provider: LocalProvider, name: str
) -> None:
    """Issue 16, point 4: nothing of it is a failure of the platform."""
    sandbox = await provider.start(_REQUEST)
    seen = await _step(sandbox, f"cd /testbed; {{ {_SURVIVED[name]}; }} >/dev/null 2>&1")
    assert seen is not None
    for step in _FOLLOW:
        seen = await _step(sandbox, step)
    assert seen is not None
    assert seen.stdout == b"again\n", "the harness can take its work"
    await sandbox.close()


@pytest.mark.threat(point=6)
@pytest.mark.parametrize(
    "command",
    [
        "renice -n 19 -p 1",
        "renice -n 19 -g 1",
        "renice -n 19 -u $(id -u)",
        "chrt --idle --pid 0 1",
        "chrt --batch --pid 0 1",
        "taskset --pid 1 1",
        "ionice --class 3 --pid 1",
    ],
)
async def test_commands_can_not_slow_the_supervisor_down(
    provider: LocalProvider, command: str
) -> None:
    """Issue 16, point 4: starved, it would count as lost, and its episode would not be graded."""
    sandbox = await provider.start(_REQUEST)
    refused = await sandbox.exec(f"{command} 2>&1", cwd="/")
    assert refused.exit_code, refused.stdout
    assert b"not permitted" in refused.stdout
    own = "renice -n 5 -p $$ && chrt --batch --pid 0 $$ && ionice --class 3 --pid $$ && nice true"
    allowed = await sandbox.exec(f"{{ {own}; }} 2>&1", cwd="/")
    assert allowed.exit_code == 0, allowed.stdout
    await sandbox.close()


@pytest.mark.skipif(not cgroups.find_parents(), reason="needs the right to make control groups")
async def test_a_supervisor_that_the_kernel_killed_for_memory_is_evidence(
    provider: LocalProvider,
) -> None:
    """Issue 16, point 4: children that the kernel spares, so that it takes process 1."""
    if await _score(provider) != "0":
        pytest.skip("this kernel lets no process be spared")
    sandbox = await provider.start(_REQUEST)
    with pytest.raises(SandboxDestroyedError) as caught:
        await _until_lost(sandbox)
    assert "536870912 bytes of memory, and the kernel killed" in caught.value.why
    assert not caught.value.retryable
    with pytest.raises(SandboxDestroyedError):
        await sandbox.read_file("/etc/passwd")
    await sandbox.close()


async def _until_lost(sandbox: Sandbox) -> None:
    for _ in range(5):
        await sandbox.exec(_SPARED, timeout_s=30)


async def _score(provider: LocalProvider) -> str:
    sandbox = await provider.start(_REQUEST)
    done = await sandbox.exec("echo 0 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj")
    await sandbox.close()
    return done.stdout.decode().strip()


async def test_a_sandbox_that_this_machine_ended_is_no_evidence(provider: LocalProvider) -> None:
    """Issue 16, point 4: without evidence it is the platform, and another attempt."""
    sandbox = await provider.start(_REQUEST)
    (channel,) = provider._channels
    channel._process.kill()
    await channel._process.wait()
    with pytest.raises(SandboxError) as caught:
        await sandbox.exec("true")
    assert not isinstance(caught.value, SandboxDestroyedError)
    assert caught.value.retryable
    await sandbox.close()


@pytest.mark.skipif(not cgroups.find_parents(), reason="needs the right to make control groups")
async def test_a_command_that_ran_out_of_memory_does_not_explain_a_later_loss(
    provider: LocalProvider,
) -> None:
    sandbox = await provider.start(_REQUEST)
    await _step(sandbox, _SURVIVED["memory of a command"])
    await asyncio.sleep(0.6)
    assert (await sandbox.exec("true")).ok
    (channel,) = provider._channels
    channel._process.kill()
    await channel._process.wait()
    with pytest.raises(SandboxError) as caught:
        await sandbox.exec("true")
    assert not isinstance(caught.value, SandboxDestroyedError)
    await sandbox.close()


async def test_a_sandbox_at_its_deadline_is_no_evidence(provider: LocalProvider) -> None:
    """The deadline is the platform's, also where the sandbox has reached its memory before."""
    sandbox = await provider.start(_REQUEST)
    await _step(sandbox, _SURVIVED["memory of a command"])
    (channel,) = provider._channels
    channel._expire(0.0)
    with pytest.raises(SandboxError, match="deadline") as caught:
        await sandbox.exec("true")
    assert not isinstance(caught.value, SandboxDestroyedError)
    await sandbox.close()


@pytest.mark.skipif(not cgroups.find_parents(), reason="needs the right to make control groups")
async def test_an_episode_whose_policy_does_so_is_graded_by_its_last_durable_turn(
    provider: LocalProvider, tmp_path: Path
) -> None:
    """Issue 16, point 4: real sandboxes, a real journal, and the work before the fatal turn."""
    if await _score(provider) != "0":
        pytest.skip("this kernel lets no process be spared")
    tree = image_folder(_REQUEST.image, tmp_path / "images") / "tree"
    _commit(tree)
    work, more = bash("echo fixed >code"), bash("echo more >>code")
    life = Life(tmp_path / "store", Engine({0: (work, more, bash(_SPARED), bash(_SPARED))}))
    context = replace(life.context(), sandboxes=provider)
    task = replace(TASK, image=_REQUEST.image, workdir="/testbed")
    record = await (await life.episodes()).play(replace(ATTEMPT, instance=task), context)
    assert record.stop_reason is StopReason.SANDBOX_DESTROYED
    assert record.failure is None
    assert "the kernel killed" in record.stop_evidence
    assert "+fixed\n+more\n" in record.patch
    assert sum(record.loss_mask) == sum(turn.completion_tokens for turn in record.turns)


def _commit(folder: Path) -> None:
    (folder / "code").write_text("broken\n")
    for words in ("init -q", "add -A", "-c user.name=a -c user.email=a@localhost commit -qm base"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
