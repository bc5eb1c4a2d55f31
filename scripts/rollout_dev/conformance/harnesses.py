"""Real harnesses, unchanged, in sandboxes without a network: do they play, and are tokens exact?

    scripts/conformance harnesses                   # all of them
    scripts/conformance harnesses --only codex
    scripts/with-dev-cluster scripts/conformance harnesses --pods   # as image volumes

Each is installed once, as its vendor ships it, into the user's cache (100 to 750 MB each). It plays
a task of the release pairs twice, against a scripted policy that speaks its tool: once with the
true fix, which has to resolve the task, and once without, which must not. Each episode has to be
one branch, in which everything sampled is trained on. One that can't be installed is skipped.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from rollout_dev.dev_cluster.checkout import Checkout, cache_folder
from rollout_dev.dev_cluster.errors import Progress
from rollout_dev.dev_cluster.kind import load_images
from rollout_dev.images.archive import ImageConfig, layer_from_trees, write_archive
from rollout_dev.report import Report, Row, option, program
from swe_rollout.errors import PrerequisiteError
from swe_rollout.launcher.job import RolloutJob
from swe_rollout.types.trajectory import Trajectory
from swe_rollout.worker.harnesses import PLACE, folder_of, install, ready

_ROOT: Final = Path(__file__).parents[3]
_TASK: Final = "semver"
_SCENARIOS: Final = ("gold", "wrong")
_Spec: TypeAlias = dict[str, object]


@program(
    option("--only", default="", help="harnesses whose names hold this"),
    option("--pods", action="store_true", help="in pods of the dev cluster"),
)
async def main(given: Namespace) -> Report:
    """Play; every harness that is here has to play as it should."""
    # The project's own uv: its environment has no pip.
    os.environ["PATH"] = f"{_ROOT / '.uv' / 'bin'}:{os.environ['PATH']}"
    chosen = [name for name in ready() if given.only in name]
    where = _pods if given.pods else _here
    rows = [row for name in chosen for row in await _rows(name, where)]
    played = [row for row in rows if not row.skipped]
    return Report("harnesses", tuple(rows), ok=bool(played) and all(map(_is_right, played)))


def _is_right(row: Row) -> bool:
    figures = row.figures
    wanted = float(row.labels["scenario"] == "gold")
    is_exact = figures["branches"] == figures["trained_share"] == 1.0
    return figures["resolved"] == wanted and is_exact and not row.labels["failure"]


async def _rows(name: str, where: Callable[[str], _Spec]) -> list[Row]:
    sys.stderr.write(f"{name}: ")
    try:
        sandbox = await asyncio.to_thread(where, name)
    except PrerequisiteError as error:
        sys.stderr.write("not installed\n")
        return [Row(name, skipped=str(error))]
    rows = []
    async with _job(name, sandbox).session() as session:
        (task,) = session.instances
        for sample, scenario in enumerate(_SCENARIOS):
            began = time.monotonic()
            record = await session.run_episode(task, sample=sample)
            rows.append(_row(name, scenario, record, time.monotonic() - began))
            sys.stderr.write(f"{scenario}: {record!r} ")
    sys.stderr.write("\n")
    return rows


def _row(name: str, scenario: str, record: Trajectory, took_s: float) -> Row:
    sampled = sum(turn.completion_tokens for turn in record.turns)
    trained = sum(record.loss_mask) + sum(sum(branch.loss_mask) for branch in record.branches)
    figures = {
        "resolved": float(record.reward is not None and record.reward.value == 1.0),
        "turns": float(len(record.turns)),
        "branches": float(len(record.branches) + 1),
        "trained_share": trained / sampled if sampled else 0.0,
        "prompt_tokens": float(record.main_branch.prompt_length),
        "took_s": round(took_s, 1),
    }
    failure = record.failure.message if record.failure else ""
    return Row(name, figures, {"scenario": scenario, "failure": failure})


def _job(name: str, sandbox: _Spec) -> RolloutJob:
    spec = {
        "dataset": {"releasePairs": {"names": [_TASK]}},
        "agent": {"harness": name},
        "policy": {"scripted": {"scenarios": _SCENARIOS}},
        "limits": {"contextTokens": 131_072, "maxNewTokens": 16_384, "episodeSeconds": 180},
        "sandbox": sandbox,
        "retry": {"attempts": 1},
        "store": {"uri": "file:///nowhere"},
    }
    return RolloutJob.model_validate({"metadata": {"name": "harnesses"}, "spec": spec})


def _here(name: str) -> _Spec:
    """Install a harness into the user's cache, if it is not there; return sandboxes with it."""
    if not (folder := folder_of(name)).is_dir():
        install(name, folder)
    return {"local": {}}


def _pods(name: str) -> _Spec:
    """Load the same folder into the dev cluster as an image."""
    _here(name)
    image = f"swe-rollout/harness-{name}:{ready()[name].version}"
    archive = cache_folder() / "images" / f"harness-{name}-{ready()[name].version}.tar"
    if not archive.exists():
        layer = layer_from_trees({"": folder_of(name)}, archive.with_suffix(".layer"))
        write_archive(image, [layer], ImageConfig(), archive)
        layer.path.unlink()
    load_images(Checkout.here(), [archive], Progress())
    return {"pod": {"bundles": {PLACE: image}, "imagePullPolicy": "IfNotPresent"}}
