"""Access the store of a chaos suite's job: `python -m … read|journals|write …`.

It runs under `scripts/cluster-s3 exec`, which provides the credentials.
"""

from __future__ import annotations

import asyncio
import sys

import zstandard

from rollout_dev.conformance.chaos.counting_job import STORE
from swe_rollout.store.bucket import Bucket, create_object


async def _read(job: str) -> None:
    bucket = Bucket.open(STORE)
    keys = sorted([key async for key in bucket.keys(f"{job}/episodes")])
    for key in keys:
        if key.endswith("/trajectory.json.zst"):
            sys.stdout.buffer.write(zstandard.decompress(await bucket.get(key)).strip() + b"\n")


async def _journals(job: str) -> None:
    async for key in Bucket.open(STORE).keys(f"{job}/journals"):
        print(key)


async def _main(verb: str, what: str) -> None:
    match verb:
        case "read":
            await _read(what)
        case "journals":
            await _journals(what)
        case "write":
            await create_object(what, sys.stdin.buffer.read())
        case _:
            sys.exit(f"unknown: {verb}")


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
