"""The gateway as a process: docs/how-to/gateway.md, followed, with an agent in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from checkout import ROOT
from doc_steps import blocks
from swe_rollout.datasets import release_pairs
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.store.store import Store
from swe_rollout.types.episode import EpisodeId

PAGE = ROOT / "docs" / "how-to" / "gateway.md"
START, OPEN, CLOSE = blocks(PAGE, "bash")[:3]
ENV = os.environ | {
    "GATEWAY_KEY": "a key of this test",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    if refusal := bubblewrap.refusal():
        pytest.skip(refusal)
    command = START.partition("\n")[2].replace("examples/", f"{ROOT}/examples/")
    command = command.replace("--port 8600", "--port 0")
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=tmp_path, env=ENV, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip().removeprefix("http://")
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130


def run(command: str, address: str, folder: Path) -> dict[str, object]:
    done = subprocess.run(
        ["bash", "-c", command.replace("localhost:8600", address)],
        cwd=folder,
        env=ENV,
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


async def test_the_page_is_followed(address: str, tmp_path: Path) -> None:
    opened = run(OPEN, address, tmp_path)
    asked = {"messages": [{"role": "user", "content": "Fix it."}], "max_tokens": 64}
    url, headers = f"http://{address}/v1/messages", {"x-api-key": str(opened["key"])}
    async with ClientSession() as agent, agent.post(url, json=asked, headers=headers) as response:
        answer = await response.json()
    assert answer["usage"]["output_tokens"] > 0
    (task,) = await release_pairs.load(["semver"], on_progress=lambda _: None)
    (tmp_path / "agent.diff").write_text(task.gold_patch)
    closed = run(CLOSE, address, tmp_path)
    assert (closed["verdict"], closed["reward"], closed["trained_share"]) == ("resolved", 1.0, 1.0)
    store = Store.open(f"file://{tmp_path / 'runs'}")
    record = await store.read(EpisodeId("release-pairs", task.instance_id, 0))
    assert record.patch == task.gold_patch
    assert sum(record.loss_mask) == answer["usage"]["output_tokens"]
