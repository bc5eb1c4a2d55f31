"""Real harnesses, unchanged, in sandboxes without a network: do they play, and are tokens exact?

    scripts/conformance harnesses                   # all of them
    scripts/conformance harnesses --only codex

Each is installed once, as its vendor ships it, into the user's cache (100 to 750 MB each). It plays
a task of the release pairs twice, against a scripted policy that speaks its tool: once with the
true fix, which has to resolve the task, and once without, which must not. Each episode has to be
one branch, in which everything sampled is trained on. One that can't be installed is skipped.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel

from rollout_dev.report import Report, Row, parser, silence_logs
from swe_rollout.datasets import release_pairs
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.sandbox.local.images import cache_dir
from swe_rollout.types.trajectory import Trajectory

_ROOT: Final = Path(__file__).parents[4]
_TASK: Final = "semver"
_NODE: Final = "node@22.23.3"
"""What harnesses in JavaScript run on: a newer one than most systems have."""
_INSTALL_S: Final = 900


class Installable(BaseModel):
    """A harness, as its file has it."""

    npm: str = ""
    pip: str = ""
    tool: str
    """Its tool that runs commands, and that tool's argument."""
    argument: str
    ends: str = ""
    """The command by which the policy says that it is done; empty if it just says so."""
    command: str


def harnesses() -> dict[str, Installable]:
    """Return all harnesses by name."""
    text = (files(__package__) / "harnesses.yaml").read_text("utf-8")
    return {name: Installable.model_validate(each) for name, each in yaml.safe_load(text).items()}


def main(arguments: Sequence[str]) -> int:
    """Play and print; return 1 if a harness that is here does not play as it should."""
    options = parser("scripts/conformance harnesses", __doc__)
    options.add_argument("--only", default="", help="harnesses whose names hold this")
    given = options.parse_args(arguments)
    silence_logs()
    chosen = {name: each for name, each in harnesses().items() if given.only in name}
    return asyncio.run(_play_all(chosen)).printed(as_json=given.json)


async def _play_all(chosen: dict[str, Installable]) -> Report:
    rows = [row for name, each in chosen.items() for row in await _rows(name, each)]
    played = [row for row in rows if not row.skipped]
    return Report("harnesses", tuple(rows), ok=bool(played) and all(map(_is_right, played)))


def _is_right(row: Row) -> bool:
    figures = row.figures
    wanted = float(row.labels["script"] == "gold")
    return (
        figures["resolved"] == wanted
        and figures["branches"] == figures["trained_share"] == 1.0
        and figures["turns"] == figures["expected_turns"]
    )


async def _rows(name: str, harness: Installable) -> list[Row]:
    sys.stderr.write(f"{name}: ")
    try:
        folder = await asyncio.to_thread(_installed, name, harness)
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write("not installed\n")
        return [Row(name, skipped=f"npm or pip could not install it: {error}")]
    (task,) = await release_pairs.load([_TASK], on_progress=lambda _: None)
    # Some refuse commands with quotes of the shell, which a patch may hold.
    fix = f"echo {b64encode(task.gold_patch.encode()).decode()} | base64 -d | git apply"
    rows = []
    for script, steps in (("gold", ["git status --short", fix]), ("wrong", ["git status --short"])):
        turns = [_turn(harness, step) for step in steps]
        turns.append(_turn(harness, harness.ends) if harness.ends else {"say": "Done."})
        began = time.monotonic()
        record = await _episode(harness, folder, turns)
        rows.append(_row(name, script, record, len(turns), time.monotonic() - began))
        sys.stderr.write(f"{script}: {record!r} ")
    sys.stderr.write("\n")
    return rows


def _turn(harness: Installable, command: str) -> dict[str, object]:
    return {"say": "  I go on. \n", "call": {harness.tool: {harness.argument: command}}}


def _row(name: str, script: str, record: Trajectory, turns: int, took_s: float) -> Row:
    sampled = sum(turn.completion_tokens for turn in record.turns)
    trained = sum(record.loss_mask) + sum(sum(branch.loss_mask) for branch in record.branches)
    figures = {
        "resolved": float(record.reward is not None and record.reward.value == 1.0),
        "turns": float(len(record.turns)),
        "expected_turns": float(turns),
        "branches": float(len(record.branches) + 1),
        "trained_share": trained / sampled if sampled else 0.0,
        "prompt_tokens": float(record.main_branch.prompt_length),
        "took_s": round(took_s, 1),
    }
    failure = record.failure.message if record.failure else ""
    return Row(name, figures, {"script": script, "failure": failure})


async def _episode(
    harness: Installable, folder: Path, turns: list[dict[str, object]]
) -> Trajectory:
    job = RolloutJob.model_validate(
        {
            "apiVersion": "swe-rollout.dev/v1alpha1",
            "kind": "RolloutJob",
            "metadata": {"name": "harnesses"},
            "spec": {
                "dataset": {"releasePairs": {"names": [_TASK]}},
                "agent": {"use": "harness", "with": {"command": harness.command}},
                "policy": {"scripted": {"turns": turns}},
                "limits": {
                    "contextTokens": 131_072,
                    "maxNewTokens": 16_384,
                    "episodeSeconds": 180,
                },
                "sandbox": {"local": {"bundles": {"/opt/harness": str(folder)}}},
                "retry": {"attempts": 1},
                "store": {"uri": "file:///nowhere"},
            },
        }
    )
    async with job.session() as session:
        return await session.run_episode(session.instances[0])


def _installed(name: str, harness: Installable) -> Path:
    """Return the folder with a harness; install it if it is not there."""
    package = harness.npm or harness.pip
    folder = cache_dir() / "harnesses" / f"{name}-{package.rpartition('@')[2].rpartition('=')[2]}"
    done = folder / ".installed"
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if harness.npm:
        command = ["npm", "install", "--force", "--no-audit", "--no-fund", _NODE, harness.npm]
        (folder / "package.json").write_text("{}")
    else:
        target = str(folder / "packages")
        uv = str(_ROOT / ".uv" / "bin" / "uv")
        command = [uv, "pip", "install", "--quiet", "--python", sys.executable]
        command += ["--target", target, package]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_INSTALL_S)
    done.touch()
    return folder
