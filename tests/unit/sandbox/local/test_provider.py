"""Isolation of local sandboxes from the machine and the cache, and cleaning up at their end."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from ratios import ratio
from swe_rollout.errors import PrerequisiteError, SandboxError
from swe_rollout.sandbox.base import Role, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap, namespace
from swe_rollout.sandbox.local.cgroups import find_parents
from swe_rollout.sandbox.local.folder import ProviderFolder, own_name
from swe_rollout.sandbox.local.images import LocalImage, Mount, cache_dir, image_folder, save_image
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from waits import PATIENCE_S, block_until, until

needs_bubblewrap = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs `apt-get install bubblewrap`"
)
_OWN_NETWORK = str(Path("/proc/self/ns/net").readlink())
_GOLD = b"diff --git a/gold b/gold"


def _request(*, workdir: str = "/testbed", deadline_s: float = 600.0) -> SandboxRequest:
    return SandboxRequest(
        episode=EpisodeId(job="job", instance="one", sample=0),
        role=Role.AGENT,
        image="swe-rollout/one:1",
        workdir=workdir,
        deadline_s=deadline_s,
    )


@pytest.fixture(autouse=True)
def _image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = image_folder("swe-rollout/one:1")
    (folder / "tree" / "package").mkdir(parents=True)
    (folder / "tree" / "package" / "code.py").write_text("x = 1\n")
    (folder / "tree" / "run").symlink_to("package/code.py")
    (folder / "deps").mkdir()
    (folder / "deps" / "dep.py").write_text("y = 2\n")
    (folder / "gold.patch").write_bytes(_GOLD)
    mounts = (
        Mount("tree", "/testbed", writable=True),
        Mount("deps", "/opt/deps", writable=False),
    )
    save_image(LocalImage("swe-rollout/one:1", mounts, {"PYTHONPATH": "/opt/deps"}), folder)


@pytest.fixture
async def provider() -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(LocalSandbox(), harmless=True)
    yield provider
    await provider.aclose()


@pytest.fixture
async def plain() -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(LocalSandbox(isolation="none"))
    yield provider
    await provider.aclose()


async def _visible(sandbox: Sandbox, path: Path) -> bool:
    return (await sandbox.exec(["ls", "-d", str(path)])).ok


def _sandboxes() -> list[Path]:
    """The folders of plain sandboxes, and the control groups of all."""
    kept = {"lock", "supervisor", "content", "point"}
    folders = (cache_dir() / "sandboxes").glob("*/*")
    groups = (path for parent in find_parents() for path in parent.path.glob(f"*{own_name()}*"))
    return [*(path for path in folders if path.name not in kept), *groups]


def test_the_provider_implements_the_protocol(provider: LocalProvider) -> None:
    assert isinstance(provider, SandboxProvider)


@needs_bubblewrap
async def test_neither_cache_nor_gold_nor_store_nor_checkout_is_visible(
    provider: LocalProvider, tmp_path: Path
) -> None:
    store = tmp_path / "runs"
    store.mkdir()
    sandbox = await provider.start(_request())
    for path in (cache_dir(), image_folder("swe-rollout/one:1"), store, Path(__file__), tmp_path):
        assert path.exists()
        assert not await _visible(sandbox, path)
    searched = await sandbox.exec(["grep", "-rlsF", _GOLD.decode(), "/testbed", "/opt", "/tmp"])  # noqa: S108
    assert searched.stdout == b""


@needs_bubblewrap
async def test_a_sandbox_is_removed_in_a_part_of_the_time_in_which_one_starts(
    provider: LocalProvider,
) -> None:
    """With what runs in it: no wait for processes that hear no signal, and no slow poll."""
    running = [await provider.start(_request())]
    busy = "trap '' TERM; for i in 1 2 3 4 5 6 7 8; do sleep 600 & done"

    async def start() -> None:
        running.append(await provider.start(_request()))
        await running[-1].exec(busy)

    async def remove() -> None:
        await running.pop().close()

    assert await ratio(remove, start) < 0.25


@needs_bubblewrap
async def test_nothing_of_the_machine_can_be_changed(provider: LocalProvider) -> None:
    sandbox = await provider.start(_request())
    for path in ("/usr/touched", "/opt/deps/touched", "/etc/passwd", "/etc/alternatives/x"):
        assert not (await sandbox.exec(f"echo x >>{path}")).ok
    sysctl = "/proc/sys/kernel/printk_ratelimit"
    assert not (await sandbox.exec(f"value=$(cat {sysctl}) && echo $value >{sysctl}")).ok
    assert (await sandbox.exec("grep CapEff /proc/self/status")).stdout.split()[1] == b"0" * 16


@needs_bubblewrap
async def test_neither_secrets_nor_network_nor_other_processes_are_there(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hidden")
    sandbox = await provider.start(_request())
    assert b"hidden" not in (await sandbox.exec("env")).stdout
    assert not await _visible(sandbox, Path("/etc/shadow"))
    assert not await _visible(sandbox, Path("/etc/ssl/private"))
    interfaces = await sandbox.exec("cut -d: -f1 /proc/net/dev | tail -n +3")
    assert interfaces.stdout.split() == [b"lo"]
    shown = {int(pid) for pid in (await sandbox.exec("cd /proc; ls -d [0-9]*")).stdout.split()}
    assert max(shown) < 100


@needs_bubblewrap
async def test_the_image_is_where_it_belongs(provider: LocalProvider) -> None:
    sandbox = await provider.start(_request())
    script = "pwd; cat run; readlink run; python3 -c 'import dep; print(dep.y)'; echo $HOME; ls ~"
    result = await sandbox.exec(script)
    assert result.stderr == b""
    lines = result.stdout.decode().splitlines()
    assert lines[:5] == ["/testbed", "x = 1", "package/code.py", "2", "/root"]
    version = await sandbox.exec(["python3", "-c", "import sys; print(*sys.version_info[:2])"])
    assert tuple(map(int, version.stdout.split())) == sys.version_info[:2]


@needs_bubblewrap
async def test_loopback_works(provider: LocalProvider) -> None:
    sandbox = await provider.start(_request())
    script = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(s.getsockname()); print('connected')"
    )
    assert (await sandbox.exec(["python3", "-c", script])).stdout == b"connected\n"


async def test_sandboxes_do_not_share_what_they_write(provider: LocalProvider) -> None:
    one, two = await asyncio.gather(provider.start(_request()), provider.start(_request()))
    await one.exec("echo changed >run; echo new >new")
    assert await two.read_file("run") == b"x = 1\n"
    assert not (await two.exec("ls new")).ok
    tree = image_folder("swe-rollout/one:1") / "tree"
    assert (tree / "package" / "code.py").read_text() == "x = 1\n"


async def test_closing_removes_a_plain_directory_whatever_its_modes(plain: LocalProvider) -> None:
    sandbox = await plain.start(_request())
    await sandbox.exec("mkdir -p a/b; touch a/b/c; chmod 0 a/b a")
    assert len(_sandboxes()) == 1
    await sandbox.close()
    assert _sandboxes() == []


async def test_closing_the_provider_ends_what_is_open(provider: LocalProvider) -> None:
    sandbox = await provider.start(_request())
    await provider.aclose()
    with pytest.raises(SandboxError):
        await sandbox.exec("true")
    assert _sandboxes() == []


async def test_a_sandbox_ends_itself_at_its_deadline(provider: LocalProvider) -> None:
    sandbox = await provider.start(_request(deadline_s=3))
    with pytest.raises(SandboxError) as caught:
        await sandbox.exec("sleep 30")
    assert "deadline" in caught.value.why
    await sandbox.close()
    assert _sandboxes() == []


async def test_a_cancelled_start_leaves_nothing(provider: LocalProvider) -> None:
    for wait_s in (0.0, 0.005, 0.02, 0.04):
        task = asyncio.create_task(provider.start(_request()))
        await asyncio.sleep(wait_s)
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
        if isinstance(done[0], Sandbox):
            await done[0].close()
    await provider.aclose()
    assert _sandboxes() == []


@needs_bubblewrap
async def test_a_start_that_is_cancelled_while_the_provider_opens_leaves_nothing(
    provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, goes_on = threading.Event(), threading.Event()

    def hold(root: Path) -> bool:
        (own,) = root.glob("*-*")
        opens.set()
        assert goes_on.wait(PATIENCE_S)
        (own / "late").mkdir(parents=True)
        return False

    monkeypatch.setattr(namespace, "can_overlay", hold)
    task = asyncio.create_task(provider.start(_request()))
    assert await asyncio.to_thread(opens.wait, PATIENCE_S)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    closing = asyncio.create_task(provider.aclose())
    await asyncio.sleep(0.1)
    goes_on.set()
    await closing
    assert _sandboxes() == []


async def test_a_missing_image_is_no_infrastructure_failure(tmp_path: Path) -> None:
    provider = LocalProvider(LocalSandbox(images=str(tmp_path)), harmless=True)
    with pytest.raises(SandboxError) as caught:
        await provider.start(_request())
    assert not caught.value.retryable
    assert caught.value.fix


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
async def test_a_disk_that_takes_no_sandbox_is_named_with_its_folder(
    plain: LocalProvider, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(_folder: ProviderFolder, _root: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ProviderFolder, "__init__", full)
    with pytest.raises(SandboxError, match="takes no files") as caught:
        await plain.start(_request())
    assert str(cache_dir()) in str(caught.value)
    assert os.strerror(number) in caught.value.why
    assert "XDG_CACHE_HOME" in caught.value.fix


async def test_a_missing_workdir_is_an_error_of_the_start(provider: LocalProvider) -> None:
    with pytest.raises(SandboxError, match="/testbed/nowhere"):
        await provider.start(_request(workdir="/testbed/nowhere"))
    assert _sandboxes() == []


async def test_a_plain_directory_has_real_paths(plain: LocalProvider) -> None:
    assert "plain directories" in plain.warning
    sandbox = await plain.start(_request(workdir="/testbed/package"))
    assert sandbox.workdir.startswith(str(cache_dir()))
    result = await sandbox.exec("pwd; cat code.py; python3 -c 'import dep; print(dep.y)'")
    assert result.stdout.decode().splitlines() == [sandbox.workdir, "x = 1", "2"]


async def test_a_plain_directory_protects_the_image(plain: LocalProvider) -> None:
    sandbox = await plain.start(_request())
    await sandbox.exec("echo spoilt >$PYTHONPATH/dep.py")
    assert (image_folder("swe-rollout/one:1") / "deps" / "dep.py").read_text() == "y = 2\n"


async def test_a_plain_directory_kills_daemons(plain: LocalProvider, tmp_path: Path) -> None:
    sandbox = await plain.start(_request())
    beat = tmp_path / "beat"
    script = f"setsid sh -c 'while :; do echo x >>{beat}; sleep 0.05; done' >/dev/null 2>&1 &"
    await sandbox.exec(script)
    await sandbox.exec(f"until [ -s {beat} ]; do sleep 0.05; done")
    await sandbox.close()
    size = beat.stat().st_size
    await asyncio.sleep(0.3)
    assert beat.stat().st_size == size


@pytest.fixture
def _without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    bubblewrap.refusal.cache_clear()
    yield
    bubblewrap.refusal.cache_clear()


@pytest.mark.threat(point=5)
@pytest.mark.usefixtures("_without_bubblewrap")
@pytest.mark.parametrize("isolation", ["auto", "bubblewrap"])
def test_without_bubblewrap_a_models_commands_need_an_explicit_choice(
    isolation: Literal["auto", "bubblewrap"],
) -> None:
    with pytest.raises(PrerequisiteError) as caught:
        LocalProvider(LocalSandbox(isolation=isolation))
    assert "not installed" in caught.value.why
    assert "apt-get install bubblewrap" in caught.value.fix
    assert "isolation: none" in caught.value.fix
    assert "plain directories" in LocalProvider(LocalSandbox(isolation="none")).warning


@pytest.mark.threat(point=5)
@pytest.mark.usefixtures("_without_bubblewrap")
def test_without_bubblewrap_harmless_commands_run_in_plain_directories_unless_forbidden() -> None:
    assert "apt-get install bubblewrap" in LocalProvider(LocalSandbox(), harmless=True).warning
    with pytest.raises(PrerequisiteError):
        LocalProvider(LocalSandbox(isolation="bubblewrap"), harmless=True)


@needs_bubblewrap
async def test_our_own_death_ends_the_sandbox_and_leaves_no_group(tmp_path: Path) -> None:
    mark = f"60.{secrets.randbelow(10**9)}"
    run = (
        "import asyncio, sys\n"
        "from tests_request import request\n"
        "from swe_rollout.sandbox.local.provider import LocalProvider\n"
        "from swe_rollout.spec.sandbox import LocalSandbox\n"
        "async def main():\n"
        "    sandbox = await LocalProvider(LocalSandbox()).start(request)\n"
        f"    await sandbox.exec('setsid sleep {mark} >/dev/null 2>&1 & true')\n"
        "    print('running', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    (tmp_path / "tests_request.py").write_text(
        "from swe_rollout.sandbox.base import Role, SandboxRequest\n"
        "from swe_rollout.types.trajectory import EpisodeId\n"
        "request = SandboxRequest(episode=EpisodeId(job='j', instance='i', sample=0), "
        "role=Role.AGENT, image='swe-rollout/one:1', workdir='/testbed')\n"
    )
    pid = await asyncio.to_thread(_run_and_kill, run, tmp_path, mark)
    await until(lambda: not _runs(mark))
    provider = LocalProvider(LocalSandbox())
    await provider.start(_request())
    await provider.aclose()
    assert not [p for parent in find_parents() for p in parent.path.glob(f"swe-rollout-{pid}-*")]
    assert list((cache_dir() / "sandboxes").iterdir()) == []


def _run_and_kill(program: str, folder: Path, mark: str) -> int:
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        block_until(lambda: _runs(mark))  # a shell that goes on may start it later
        process.kill()
    return process.pid


def _runs(argument: str) -> bool:
    def has(process: Path) -> bool:
        try:
            return argument.encode() in (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False

    return any(has(process) for process in Path("/proc").glob("[0-9]*"))


@needs_bubblewrap
@pytest.mark.parametrize("network", ["none", "requested"])
@pytest.mark.parametrize("wants", ["network", "nothing"])
async def test_a_sandbox_has_a_network_only_where_task_and_job_say_so(
    network: str, wants: str
) -> None:
    provider = LocalProvider(LocalSandbox.model_validate({"network": network}))
    try:
        asked = replace(_request(), wants_network=wants == "network")
        sandbox = await provider.start(asked)
        seen = (await sandbox.exec(["readlink", "/proc/self/ns/net"])).stdout.decode().strip()
        assert (seen == _OWN_NETWORK) is ((network, wants) == ("requested", "network"))
    finally:
        await provider.aclose()


@needs_bubblewrap
async def test_a_bundle_is_seen_by_agents_alone_and_changed_by_nobody(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "program").write_text("hello\n")
    spec = LocalSandbox(bundles={"/opt/harness": str(tmp_path / "bundle")})
    provider = LocalProvider(spec)
    agent = await provider.start(_request())
    grader = await provider.start(replace(_request(), role=Role.GRADER))
    command = "cat /opt/harness/program; echo mine >/opt/harness/program"
    seen, unseen = [await each.exec(command) for each in (agent, grader)]
    assert (seen.stdout, seen.ok) == (b"hello\n", False)
    assert (unseen.stdout, unseen.ok) == (b"", False)
    assert (tmp_path / "bundle" / "program").read_text() == "hello\n"
    await provider.aclose()


@needs_bubblewrap
def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    spec = LocalSandbox(bundles={"/opt/harness": str(tmp_path / "gone")})
    with pytest.raises(PrerequisiteError, match="gone"):
        LocalProvider(spec)
