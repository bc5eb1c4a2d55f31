"""No credential stands in a file of the repository."""

from __future__ import annotations

import subprocess

import pytest

from checkout import ROOT
from rollout_dev.release import KEYS


def test_no_tracked_file_holds_a_key() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    files = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    assert files
    assert [f for f in files if f.is_file() and KEYS.search(f.read_bytes())] == []


@pytest.mark.parametrize("key", [b"sk-" + b"a1" * 16, b"AKIA" + b"A1" * 8, b"hf_" + b"b2" * 16])
def test_a_key_would_be_found(key: bytes) -> None:
    assert KEYS.search(b'token = "' + key + b'"')
