"""^C and SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest
import typer

from swe_rollout.cli.interrupt import InterruptMessages, run_async
from waits import PATIENCE_S


def test_the_first_signal_cleans_up_and_exits_130() -> None:
    notes: list[str] = []
    cleaned: list[bool] = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(typer.Exit) as ended:
        run_async(work(), on_note=notes.append)

    assert ended.value.exit_code == 130
    assert cleaned == [True]
    assert notes[0].startswith("stopping")
    assert notes[1].startswith("stopped")


def test_the_second_signal_exits_immediately() -> None:
    code = (
        "import asyncio, sys\n"
        "from swe_rollout.cli.interrupt import run_async\n"
        "async def work():\n"
        "    print('ready', flush=True)\n"
        "    try:\n"
        "        await asyncio.sleep(600)\n"
        "    finally:\n"
        "        await asyncio.sleep(600)\n"
        "run_async(work(), on_note=lambda text: print(text, flush=True))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().startswith("stopping")
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=PATIENCE_S) == 130


def test_an_interrupt_while_following_only_says_that_the_job_goes_on() -> None:
    notes: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.sleep(30)

    with pytest.raises(typer.Exit) as ended:
        run_async(work(), on_note=notes.append, messages=InterruptMessages("detached", ""))

    assert ended.value.exit_code == 130
    assert notes == ["detached"]
