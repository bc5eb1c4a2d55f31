"""One real SGLang server for the whole run: the one that is up, or one started and stopped here.

`SGLANG_URL` names another server, with `SGLANG_MODEL` (or `SGLANG_TOKENIZER`, which skips the
checks of logprobs) for its model's folder. Tests that break or update a server always start their
own, on the CPU.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sglang.served import (
    COMMAND,
    LONG,
    MODEL,
    Breakable,
    Served,
    command,
    named,
    require_installed,
)
from swe_rollout.engine.sglang.engine import SglangEngine
from swe_rollout.spec.policy import SglangPolicy


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """Start or find a real SGLang server that no test breaks."""
    if (own := named()) is not None:
        yield own
        return
    require_installed()
    was_running = subprocess.run([COMMAND, "status"], check=False, capture_output=True)
    yield Served(command("up"), MODEL, MODEL, is_tiny=True)
    if was_running.returncode != 0:
        command("down")


@pytest.fixture(scope="session")
def sglang_url(served: Served) -> str:
    return served.url


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Breakable]]:
    """Return a function that starts servers to kill and update, with the server's own flags."""
    require_installed()
    started: list[Breakable] = []

    def start(*flags: str) -> Breakable:
        started.append(Breakable(tmp_path_factory.mktemp("server"), *flags))
        return started[-1]

    yield start
    for server in started:
        server.down()


@pytest.fixture(scope="module")
def roomy(request: pytest.FixtureRequest) -> Served:
    """Start a server whose context holds what any harness sends; the user's own has to."""
    if (own := named()) is not None:
        return own
    flags = ("--model-path", str(LONG), "--max-total-tokens=262144")  # 1 KiB each
    server: Breakable = request.getfixturevalue("breakable")(*flags)
    return Served(server.url, LONG, LONG, is_tiny=True)


@pytest.fixture
async def engine(served: Served) -> AsyncIterator[SglangEngine]:
    """Make a client of the shared server."""
    policy = SglangPolicy(url=served.url)
    client = SglangEngine(policy, vocab_size=served.renderer.vocab_size)
    yield client
    await client.aclose()
