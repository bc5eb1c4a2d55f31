"""The policy of a soak: it counts, and notes what only its process can see."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

from rollout_dev.counting import Counting
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.types.turn import Generation

INSIDE: Final = "SOAK_INSIDE"
"""Names the file of what is seen inside."""
_EVERY_S: Final = 0.5
_LEAK_BYTES: Final = 1 << 18


class Leak(StrEnum):
    """What to leak in each first turn, to see that it is found."""

    NONE = "none"
    MEMORY = "memory"
    DESCRIPTORS = "descriptors"
    TASKS = "tasks"
    PROCESSES = "processes"
    TEMPORARY_FILES = "temporary_files"


class Soaking(Counting):
    """Counts, as `Counting` does."""

    def __init__(self, turns: int = 4, pause_s: float = 0.0, leak: str = Leak.NONE) -> None:
        """`leak`: what it leaks once in each episode."""
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
        # Cycles that wait for the collector are no leak.
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
