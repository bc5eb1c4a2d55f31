"""Servers for the tests: the shared one, a user's own by `SGLANG_URL`, and breakable ones."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from sglang.calls import ENDLESS_TEXT, PROMPT_TEXT, REQUEST, long
from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.base import GenerateRequest
from swe_rollout.tokens.log import InputIds

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / "scripts" / "sglang-cpu"
STATE = ROOT / ".sglang"
MODEL, UPDATE, LONG = (STATE / name for name in ("model", "model-update", "model-long"))


@dataclass(frozen=True)
class Served:
    """A server that no test breaks, and its model."""

    url: str
    tokenizer: Path
    model: Path | None
    """The checkpoint, to recompute logprobs with; None: not on this machine."""
    is_tiny: bool
    """Whether it is the tiny model of `scripts/sglang-cpu`: it writes calls, and never ends some
    prompts."""

    @cached_property
    def renderer(self) -> Renderer:
        """The renderer of its tokenizer."""
        return Renderer.load(str(self.tokenizer))

    @cached_property
    def call(self) -> GenerateRequest:
        """A short call."""
        return replace(REQUEST, input_ids=InputIds.of(self.encode(PROMPT_TEXT)))

    @cached_property
    def long_call(self) -> GenerateRequest:
        """A call that runs until it is ended."""
        return long(REQUEST, self.encode(ENDLESS_TEXT))

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.tokenizer / "tokenizer.json"))

    def encode(self, text: str) -> list[int]:
        """Encode text, control tokens included."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def named() -> Served | None:
    """Return the server of `SGLANG_URL`, with the tokenizer and model that the variables name."""
    url = os.environ.get("SGLANG_URL")
    if not url:
        return None
    tokenizer, model = os.environ.get("SGLANG_TOKENIZER"), os.environ.get("SGLANG_MODEL")
    folder = tokenizer or model
    assert folder, "SGLANG_URL needs SGLANG_TOKENIZER or SGLANG_MODEL: the model's folder"
    return Served(url.rstrip("/"), Path(folder), Path(model) if model else None, is_tiny=False)


def require_installed() -> None:
    """Skip the test where there is no SGLang."""
    if not (STATE / "installed.txt").exists() or not (STATE / "router.txt").exists():
        pytest.skip("needs SGLang for the CPU (5 GB): run `scripts/sglang-cpu setup`")


def command(*arguments: str | Path) -> str:
    """Run `scripts/sglang-cpu` and return its output."""
    done = subprocess.run([COMMAND, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Breakable:
    """A server of one test module, to kill and to update."""

    def __init__(self, state: Path, *flags: str) -> None:
        self.state = state
        self.url = command("up", "--state", state, "--", *flags)

    async def kill(self) -> None:
        """Kill it and all its processes at once."""
        await asyncio.to_thread(command, "kill", "--state", self.state)

    async def restart(self) -> None:
        """Restart it at the same address."""
        await asyncio.to_thread(command, "again", "--state", self.state)

    def down(self) -> None:
        """Stop it for good."""
        command("down", "--state", self.state)


def teach(
    records: Iterable[Path], models: Mapping[str, Path], *, temperature: float = 1.0
) -> dict[str, Any]:
    """Compare records with a teacher-forced recomputation; returns its report in any case."""
    arguments = [f"--model={version}={folder}" for version, folder in models.items()]
    arguments += [f"--temperature={temperature:g}", *map(str, records)]
    done = subprocess.run(
        [COMMAND, "teacher", "--", *arguments], check=False, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    comparison = json.loads(done.stdout)
    assert isinstance(comparison, dict)
    return comparison
