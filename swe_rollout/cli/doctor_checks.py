"""The checks of `doctor`, by tier, each with a fix.

A check tries the real thing instead of guessing from its version: bubblewrap really runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from swe_rollout.errors import SweRolloutError
from swe_rollout.sandbox.local.cgroups import find_parents
from swe_rollout.sandbox.local.images import cache_dir
from swe_rollout.text.escaping import one_line
from swe_rollout.text.formatting import format_size

if TYPE_CHECKING:
    from swe_rollout.cluster import doctor as cluster

_COMMAND_S = 15.0
_HTTP_S = 5.0
_POD_S = 120.0
_POLICY_S = 5.0
"""A NetworkPolicy takes effect a moment after the pod has its address."""
_LEAST_BYTES = 5 << 30
_SERVER_ERROR = 500
SGLANG_URL = "SWE_ROLLOUT_SGLANG_URL"


class Tier(StrEnum):
    """The capability that a check belongs to."""

    LOCAL = "local"
    """Jobs in this process, sandboxes on this machine."""
    CLUSTER = "cluster"
    """Sandboxes as Kubernetes pods."""
    S3 = "s3"
    """Trajectories in object storage."""
    SGLANG = "sglang"
    """A real model."""


class CheckStatus(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One line of the report."""

    tier: Tier
    name: str
    status: CheckStatus
    text: str
    fix: str = ""

    def to_record(self) -> dict[str, str]:
        """The check as a JSON object."""
        record = {"tier": self.tier, "name": self.name, "verdict": self.status}
        return {**record, "text": self.text, "fix": self.fix}


_local_check = partial(DoctorCheck, Tier.LOCAL)
_cluster_check = partial(DoctorCheck, Tier.CLUSTER)


async def examine(*, image: str | None = None, cleans: bool = False) -> tuple[DoctorCheck, ...]:
    """Run all checks, in the order of the tiers; with an image, also a sandbox pod from inside.

    `cleans`: remove what dead jobs and processes have left, instead of counting it.
    """
    cluster = _cluster(image, cleans=cleans)
    groups = await asyncio.gather(_local(cleans=cleans), cluster, _s3(), _sglang())
    return tuple(chain.from_iterable(groups))


def report(checks: Sequence[DoctorCheck]) -> Iterator[str]:
    """Yield the lines of the report."""
    for tier, group in groupby(checks, key=lambda check: check.tier):
        yield f"{tier}:"
        for check in group:
            yield f"  {check.status:<5} {check.name:<18} {one_line(check.text)}"
            if check.fix and check.status is not CheckStatus.OK:
                yield f"          fix   {one_line(check.fix)}"


@dataclass(frozen=True, slots=True)
class _CommandResult:
    ok: bool
    text: str


_MISSING = _CommandResult(ok=False, text="not found")


async def _try(*command: str) -> _CommandResult:
    """Run a command whose program may be missing."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError:
        return _MISSING
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _COMMAND_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return _CommandResult(ok=False, text=f"no response in {_COMMAND_S:.0f} s")
    return _CommandResult(process.returncode == 0, one_line(output.decode(errors="replace")))


async def _local(*, cleans: bool) -> list[DoctorCheck]:
    version = sys.version.partition(" ")[0]
    python = _local_check("python", CheckStatus.OK, version)
    tried = await asyncio.gather(
        _git(), _bubblewrap(), _uv(), asyncio.to_thread(_leftovers, cleans=cleans)
    )
    *programs, left = tried
    return [python, *programs, _limits(), _disk(), left]


def _leftovers(*, cleans: bool) -> DoctorCheck:
    """Count or remove leftovers of local sandboxes whose process, of this user, was killed."""
    from swe_rollout.sandbox.local import leftovers

    root = leftovers.sandboxes_folder()
    found = leftovers.remove(root) if cleans else leftovers.find(root)
    kinds = Counter(each.kind.value for each in found)
    return _left_check(_local_check, kinds, "killed processes", cleans=cleans)


def _left_check(
    check: Callable[..., DoctorCheck], kinds: Mapping[str, int], of: str, *, cleans: bool
) -> DoctorCheck:
    if not kinds:
        return check("leftovers", CheckStatus.OK, "none")
    counts = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    if cleans:
        return check("leftovers", CheckStatus.OK, f"removed: {counts}, of {of}")
    return check("leftovers", CheckStatus.WARN, f"{counts}, of {of}", "swe-rollout doctor --clean")


async def _git() -> DoctorCheck:
    ran = await _try("git", "--version")
    if ran.ok:
        return _local_check("git", CheckStatus.OK, ran.text)
    return _local_check("git", CheckStatus.FAIL, ran.text, "install git: apt install git")


async def _bubblewrap() -> DoctorCheck:
    """Start a sandbox as an episode does: with all namespaces and no network."""
    ran = await _try(
        "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all",
        "--die-with-parent", "true",
    )  # fmt: skip
    if ran is _MISSING:
        fix = "apt install bubblewrap; without it, local sandboxes run scripted policies only"
        return _local_check("bubblewrap", CheckStatus.WARN, ran.text, fix)
    if not ran.ok:
        fix = "allow user namespaces (kernel.unprivileged_userns_clone=1, AppArmor's bwrap)"
        return _local_check("bubblewrap", CheckStatus.WARN, f"does not start: {ran.text}", fix)
    return _local_check("bubblewrap", CheckStatus.OK, "starts a sandbox without network")


async def _uv() -> DoctorCheck:
    ran = await _try(sys.executable, "-m", "uv", "--version")
    if not ran.ok:
        ran = await _try("uv", "--version")
    if ran.ok:
        return _local_check("uv", CheckStatus.OK, ran.text)
    fix = "pip install 'swe-rollout[release-pairs]'; only release pairs need it"
    return _local_check("uv", CheckStatus.WARN, "not found", fix)


def _limits() -> DoctorCheck:
    """Check that limits apply to each local sandbox as a whole."""
    missing = {"memory", "pids"} - {
        controller for parent in find_parents() for controller in parent.controllers
    }
    if missing:
        text = f"no control groups for {' and '.join(sorted(missing))}: each process is limited"
        fix = "systemd-run --user --scope swe-rollout …, or run it as root"
        return _local_check("limits", CheckStatus.WARN, text, fix)
    return _local_check("limits", CheckStatus.OK, "memory and processes of each local sandbox")


def _disk() -> DoctorCheck:
    folder = cache_dir()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    text = f"{format_size(free)} free for {folder}"
    if not os.access(there, os.W_OK):
        fix = "point XDG_CACHE_HOME at a folder you may write to"
        return _local_check("cache", CheckStatus.FAIL, f"{there} is not writable", fix)
    if free < _LEAST_BYTES:
        fix = "free some space, or point XDG_CACHE_HOME at a larger disk"
        return _local_check("cache", CheckStatus.WARN, text, fix)
    return _local_check("cache", CheckStatus.OK, text)


async def _cluster(image: str | None, *, cleans: bool) -> list[DoctorCheck]:
    from swe_rollout.cluster import doctor

    docker, dev = await asyncio.gather(_docker(), asyncio.to_thread(_dev_cluster))
    checks = await doctor.check_cluster(context=None, namespace=None)
    if image is not None:
        checks += await _check_inside_pod(image)
    found = [
        _cluster_check(each.name, CheckStatus(each.level.value), each.text, each.fix)
        for each in checks
    ]
    if all(each.status is CheckStatus.FAIL for each in found):
        return [docker, dev, *found]
    return [docker, dev, *found, await _left_pods(cleans=cleans)]


async def _left_pods(*, cleans: bool) -> DoctorCheck:
    """Count or delete sandbox pods in the context's namespace that nobody else will delete."""
    from swe_rollout.cluster import doctor
    from swe_rollout.cluster.client import ClusterClient

    try:
        async with aclosing(await ClusterClient.connect(retry_timeout_s=_HTTP_S)) as client:
            act = doctor.delete_left_pods if cleans else doctor.find_left_pods
            found = await act(client, client.namespace)
    except SweRolloutError as error:
        return _cluster_check("leftovers", CheckStatus.WARN, str(error), error.fix)
    kinds = {"pod": len(found)} if found else {}
    return _left_check(_cluster_check, kinds, "dead jobs and runs", cleans=cleans)


async def _check_inside_pod(image: str) -> Sequence[cluster.ClusterCheck]:
    """Check the isolation of a sandbox of the image, started as a job starts it."""
    from swe_rollout.cluster import doctor
    from swe_rollout.sandbox.base import Role, SandboxRequest
    from swe_rollout.sandbox.pods.isolation import check_isolation
    from swe_rollout.sandbox.pods.provider import PodProvider
    from swe_rollout.spec.sandbox import PodSandbox
    from swe_rollout.types.episode import EpisodeId

    episode = EpisodeId("doctor", secrets.token_hex(4), 0)
    wanted = SandboxRequest(episode, Role.AGENT, image, "/", deadline_s=_POD_S)
    made = PodProvider(PodSandbox(start_seconds=_POD_S), job=episode.job)
    try:
        async with aclosing(made) as provider:
            sandbox = await provider.start(wanted)
            await asyncio.sleep(_POLICY_S)
            return await check_isolation(sandbox)
    except SweRolloutError as error:
        return [doctor.ClusterCheck("sandbox", doctor.CheckLevel.FAIL, str(error), error.fix)]


async def _docker() -> DoctorCheck:
    ran = await _try("docker", "version", "--format", "{{.Server.Version}}")
    if not ran.ok:
        fix = "only kind needs it; scripts/dev-cluster also works without kind"
        return _cluster_check("docker", CheckStatus.SKIP, ran.text, fix)
    kind = "kind found" if shutil.which("kind") else "no kind"
    return _cluster_check("docker", CheckStatus.OK, f"{ran.text}, {kind}")


def _dev_cluster() -> DoctorCheck:
    kubeconfig = Path(".dev-cluster/kubeconfig")
    if kubeconfig.exists():
        named = os.environ.get("KUBECONFIG", "")
        fix = "" if str(kubeconfig) in named else f"export KUBECONFIG={kubeconfig.absolute()}"
        status = CheckStatus.WARN if fix else CheckStatus.OK
        return _cluster_check("dev cluster", status, str(kubeconfig), fix)
    return _cluster_check("dev cluster", CheckStatus.SKIP, "not set up", "scripts/dev-cluster up")


async def _s3() -> list[DoctorCheck]:
    url = os.environ.get("AWS_ENDPOINT_URL")
    if not url:
        fix = "export AWS_ENDPOINT_URL and credentials, as scripts/dev-s3 prints them"
        unset = "AWS_ENDPOINT_URL is not set"
        return [DoctorCheck(Tier.S3, "endpoint", CheckStatus.SKIP, unset, fix)]
    keys = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if name in os.environ]
    found = f"in {', '.join(keys)}" if keys else "none in the environment"
    status = CheckStatus.OK if keys else CheckStatus.WARN
    fix = "" if keys else "export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    endpoint = await _check_service(Tier.S3, "endpoint", url, fix="start it: scripts/dev-s3 up")
    return [endpoint, DoctorCheck(Tier.S3, "credentials", status, found, fix)]


async def _sglang() -> list[DoctorCheck]:
    gpu = await _try("nvidia-smi", "-L")
    found = CheckStatus.OK if gpu.ok else CheckStatus.SKIP
    text = gpu.text if gpu.ok else "none on this machine; the engine may run elsewhere"
    return [await _engine(), DoctorCheck(Tier.SGLANG, "gpu", found, text)]


async def _engine() -> DoctorCheck:
    url = os.environ.get(SGLANG_URL)
    if not url:
        fix = f"export {SGLANG_URL}=http://HOST:30000 to check it"
        return DoctorCheck(Tier.SGLANG, "engine", CheckStatus.SKIP, f"{SGLANG_URL} is not set", fix)
    fix = "start SGLang, or correct the address"
    return await _check_service(Tier.SGLANG, "engine", url.rstrip("/") + "/model_info", fix=fix)


async def _check_service(tier: Tier, name: str, url: str, *, fix: str) -> DoctorCheck:
    """Check that a service responds at all, even if only to refuse missing credentials."""
    shown = _without_credentials(url)
    timeout = aiohttp.ClientTimeout(_HTTP_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as client,
            client.get(url, allow_redirects=False) as response,
        ):
            code = response.status
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        why = _without_credentials(f"{type(error).__name__} {error}")
        text = f"{shown} is unreachable: {why}"
        return DoctorCheck(tier, name, CheckStatus.FAIL, text, fix)
    status = CheckStatus.OK if code < _SERVER_ERROR else CheckStatus.FAIL
    return DoctorCheck(tier, name, status, f"{shown} responds with {code}", fix)


def _without_credentials(text: str) -> str:
    return re.sub(r"(\w+://)[^/\s@]*@", r"\1", text)
