"""Limits of single processes stand in for control groups that can't be made."""

from __future__ import annotations

import os
import platform
import shutil

import pytest

from swe_rollout.sandbox.local.cgroups import Limits, process_limits
from swe_rollout.spec.sandbox import LocalSandbox

pytestmark = pytest.mark.threat(point=6)
LIMITS = Limits(memory_bytes=1 << 30, processes=100, disk_bytes=1 << 20)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(platform, "release", lambda: "6.1.0-13-amd64")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


def test_control_groups_need_no_other_limits() -> None:
    assert process_limits(LIMITS, {"memory", "pids", "cpu"}) == []


def test_what_no_group_limits_is_limited_for_each_process() -> None:
    both = ["prlimit", f"--data={1 << 30}", "--nproc=100", "--"]
    assert process_limits(LIMITS, set()) == both
    assert process_limits(LIMITS, {"pids"}) == ["prlimit", f"--data={1 << 30}", "--"]
    assert process_limits(LIMITS, {"memory"}) == ["prlimit", "--nproc=100", "--"]


@pytest.mark.parametrize("release", ["5.13.0", "4.19.0-x", "unknown"])
def test_older_kernels_count_the_users_own_processes_and_get_no_such_limit(
    monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    assert process_limits(LIMITS, {"memory"}) == []


def test_root_has_no_limit_of_processes_and_an_absent_program_sets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert process_limits(LIMITS, {"memory"}) == []
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert process_limits(LIMITS, set()) == []


def test_limits_are_those_of_the_job() -> None:
    spec = LocalSandbox(memory="512Mi", disk="64Mi", processes=50)
    limits = Limits.of(spec)
    assert limits == Limits(memory_bytes=512 << 20, processes=50, disk_bytes=64 << 20)
    assert limits.file_options == f"mode=755,size={64 << 20},nr_inodes={(64 << 20) // 8192}"
