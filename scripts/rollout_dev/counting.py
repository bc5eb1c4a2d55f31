"""A policy that counts its turns in a file, for jobs whose process is killed.

A turn depends only on its number, and its effect is a line of the file: a command that ran twice,
or not at all, shows in the patch. Jobs name it as a user's own engine.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
import zstandard
from tokenizers import Tokenizer

from swe_rollout.engine.base import EngineInfo, GenerateRequest, TokenEngine
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import FinishReason, Generation, WeightSpan

FILE: Final = "counted.txt"
NAME: Final = "counting"
ASKED: Final = "COUNTING_ASKED"


class Counting(TokenEngine):
    """Asks for one more line in each turn, and finally submits."""

    def __init__(self, turns: int = 20, pause_s: float = 0.0) -> None:
        """Add a line per sampled turn to the file that the variable `COUNTING_ASKED` names."""
        self._turns = turns
        self._pause_s = pause_s
        self._asked = os.environ.get(ASKED, "")
        self._tokenizer = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))

    async def info(self) -> EngineInfo:
        return EngineInfo(NAME, None, None, "1", tokenizer=str(tokenizer_path()))

    async def generate(self, request: GenerateRequest) -> Generation:
        await asyncio.sleep(self._pause_s)
        if self._asked:
            with Path(self._asked).open("a") as file:  # noqa: ASYNC230 - one short line
                file.write(f"{request.episode} {request.turn}\n")
        ids = tuple(self._tokenizer.encode(self.text(request), add_special_tokens=False).ids)
        return Generation(
            ids,
            tuple(-1 / (3 + index) for index in range(len(ids))),
            FinishReason.STOP,
            prompt_tokens=len(request.input_ids),
            weight_versions=(WeightSpan("1", 0, len(ids)),),
        )

    def text(self, request: GenerateRequest) -> str:
        """Return what the policy says in a turn."""
        return call(request.turn) if request.turn < self._turns - 1 else SUBMIT


SUBMIT: Final = '<tool_call>\n{"name": "submit", "arguments": {}}\n</tool_call><|im_end|>'


def call(turn: int) -> str:
    """Return the policy's text in any turn but the last."""
    command = f"echo {turn} >> {FILE}; cat {FILE} | tr '\\n' ' '"
    return f"I count.\n{bash(command)}"


def bash(command: str) -> str:
    """Return a turn that calls bash."""
    body = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"<tool_call>\n{body}\n</tool_call><|im_end|>"


def counted(turns: int) -> str:
    """Return the file's content when each command has run once."""
    return "".join(f"{turn}\n" for turn in range(turns - 1))


def write_job(
    folder: Path,
    *,
    episodes: int,
    turns: int,
    parallelism: int,
    pause_s: float,
    resume: str = "exact",
) -> Path:
    """Write the job with the counting policy, and its store beside it; return the job's file."""
    use = {"use": "rollout_dev.counting:Counting"}
    job = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "job"},
        "spec": {
            "dataset": {"releasePairs": {"names": ["python-dotenv"]}},
            "samples": episodes,
            "parallelism": parallelism,
            "policy": {"engine": use | {"with": {"turns": turns, "pause_s": pause_s}}},
            "limits": {"turns": turns + 1, "contextTokens": 131072},
            "grading": {"enabled": False},
            "retry": {"resume": resume},
            "sandbox": {"local": {}},
            "store": {"uri": f"file://{folder}/store"},
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job, sort_keys=False))
    return path


def run_command(job: Path, module: str = "swe_rollout.cli.main") -> list[str]:
    """Return the command that runs the job; its environment needs `VARIABLES`."""
    return [sys.executable, "-m", module, "run", str(job)]


VARIABLES: Final = {"PYTHONPATH": str(Path(__file__).parents[1])}
"""The policy is found by the path of this checkout."""


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the committed records of the job in a folder, by episode."""
    found = (
        msgspec.json.decode(zstandard.decompress(path.read_bytes()))
        for path in folder.glob("store/job/episodes/*/*/trajectory.json.zst")
    )
    return {str(record["episode"]): record for record in found}


INSIDE: Final = "SOAK_INSIDE"
"""Names the file with observations from inside the process."""
_EVERY_S: Final = 0.5
_LEAK_BYTES: Final = 1 << 18


class Leak(StrEnum):
    """What to leak in each first turn, to check that the leak is found."""

    NONE = "none"
    MEMORY = "memory"
    DESCRIPTORS = "descriptors"
    TASKS = "tasks"
    PROCESSES = "processes"
    TEMPORARY_FILES = "temporary_files"


class Soaking(Counting):
    """Counts like `Counting`."""

    def __init__(self, turns: int = 4, pause_s: float = 0.0, leak: str = Leak.NONE) -> None:
        """`leak` is what it leaks once in each episode."""
        super().__init__(turns, pause_s)
        self._leak = Leak(leak)
        self._kept: list[object] = []
        self._noted_at = 0.0

    async def generate(self, request: GenerateRequest) -> Generation:
        if request.turn == 0:
            self._leak_once()
        if time.monotonic() - self._noted_at > _EVERY_S:
            self._noted_at = time.monotonic()
            self._note()
        return await super().generate(request)

    def _note(self) -> None:
        # Cycles that wait for the collector are not a leak.
        gc.collect()
        seen = {"tasks": len(asyncio.all_tasks()), "objects": len(gc.get_objects())}
        path = Path(os.environ[INSIDE])
        part = path.with_name(f"{path.name}.part")
        part.write_text(json.dumps(seen))
        part.replace(path)

    def _leak_once(self) -> None:
        match self._leak:
            case Leak.NONE:
                pass
            case Leak.MEMORY:
                self._kept.append(os.urandom(_LEAK_BYTES))
            case Leak.DESCRIPTORS:
                self._kept.append(os.open("/dev/null", os.O_RDONLY))
            case Leak.TASKS:
                self._kept.append(asyncio.create_task(asyncio.Event().wait()))
            case Leak.PROCESSES:
                self._kept.append(subprocess.Popen(["sleep", "600"]))
            case Leak.TEMPORARY_FILES:
                tempfile.mkdtemp()
