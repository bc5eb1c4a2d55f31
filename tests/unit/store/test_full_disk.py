"""A folder on a disk that is full or read-only: what the store says, and that nothing half is left.

The disks are small tmpfs mounts in a namespace of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, json, os, subprocess, sys
from swe_rollout.errors import UnreachableError
from swe_rollout.store.bucket import Bucket

root = sys.argv[1]
heard = []

async def failing(bucket, key):
    try:
        await bucket.create(key, b"y" * 100_000)
    except UnreachableError as error:
        return [str(error), error.fix]

async def main():
    bucket = Bucket.open(f"file://{root}/store")
    bucket.observe(lambda kind, error: heard.append([kind, error is None]))
    await bucket.create("a/one", b"x" * 1000)
    with open(f"{root}/filler", "wb", 0) as filler:
        try:
            while True:
                filler.write(b"0" * 4096)
        except OSError:
            pass
    full = await failing(bucket, "a/two")
    while_full = [key async for key in bucket.keys("a")]
    os.unlink(f"{root}/filler")
    later = await bucket.create("a/two", b"y" * 100_000), len(await bucket.get("a/two"))
    subprocess.run(["mount", "-o", "remount,ro", root], check=True)
    readonly = await failing(bucket, "a/three")
    print(json.dumps({
        "full": full, "while_full": while_full, "later": later, "readonly": readonly,
        "readable": len(await bucket.get("a/one")), "heard": heard,
    }))

asyncio.run(main())
"""


def in_a_small_disk(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run the program with a folder on a disk of 256 KiB as its argument."""
    script = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -c "$3" "$1"'
    return subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script, "sh", str(folder), sys.executable, program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_store_on_a_disk_that_is_full_or_read_only_says_so_and_goes_on_afterwards(
    tmp_path: Path,
) -> None:
    if in_a_small_disk(tmp_path, "").returncode:
        pytest.skip("no user namespace with a mount of its own can be made here")
    done = in_a_small_disk(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    why, fix = said["full"]
    assert "No space left on device" in why
    assert fix == "free space on its disk"
    assert said["while_full"] == ["a/one"]
    assert said["later"] == [True, 100_000]
    why, fix = said["readonly"]
    assert "Read-only file system" in why
    assert fix.startswith("mount it for writing")
    assert said["readable"] == 1000
    assert ["write", False] in said["heard"]
    assert said["heard"][-1] == ["read", True]
