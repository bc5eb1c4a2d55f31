"""One real SGLang server for the whole run: the one that is up, or one started and stopped here."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from swe_rollout.engine.sglang import SglangEngine
from swe_rollout.spec.job import SglangPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / "scripts" / "sglang-cpu"
VOCAB_SIZE = 4096
"""Of the package's small tokenizer, which the server's tiny model uses."""


@pytest.fixture(scope="session")
def sglang_url() -> Iterator[str]:
    """The address of a real SGLang server with the tiny model."""
    if not (ROOT / ".sglang" / "installed.txt").exists():
        pytest.skip("needs SGLang for the CPU (5 GB): run `scripts/sglang-cpu setup`")
    was_running = subprocess.run([COMMAND, "status"], check=False, capture_output=True)
    started = subprocess.run([COMMAND, "up"], check=False, capture_output=True, text=True)
    assert started.returncode == 0, started.stderr
    yield started.stdout.strip()
    if was_running.returncode != 0:
        subprocess.run([COMMAND, "down"], check=True)


@pytest.fixture
async def engine(sglang_url: str) -> AsyncIterator[SglangEngine]:
    """A client of it."""
    client = SglangEngine(SglangPolicy(url=sglang_url), vocab_size=VOCAB_SIZE)
    yield client
    await client.aclose()
