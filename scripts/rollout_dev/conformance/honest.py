"""Honest variants of true fixes: every one has to resolve its task.

    scripts/conformance honest                       # all variants, over the release pairs
    scripts/conformance honest --only click --kind raise
    scripts/conformance honest rows.parquet --workdir sympy --python venv/bin/python

Each variant is the gold patch of a task, written as somebody else might have written it. It is made
in an agent's sandbox and graded like any other patch. One whose tests also fail where it was made,
with nothing undone, is no fix, and does not count. Progress is on stderr; exits with 1 if a fix
does not resolve its task.
"""

from __future__ import annotations

import asyncio
import random
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_dev.conformance.rewrites import Fixed
from rollout_dev.conformance.variants import Files, variants
from rollout_dev.report import Report, Row, option, program
from swe_rollout.cli.dataset_argument import named_dataset
from swe_rollout.errors import EpisodeError, SandboxError
from swe_rollout.grading.grader import Grader
from swe_rollout.grading.run import Run
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Role, Sandbox, SandboxProvider, SandboxRequest
from swe_rollout.sandbox.patch_text import touched_paths
from swe_rollout.spec.sandbox import CheckoutSpec, LocalSandbox, SandboxSpec
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from swe_rollout.types.verdict import VerdictStatus
from swe_rollout.worker.sandboxes import SandboxSetup, of_checkout, open_sandboxes

_JOB: Final = "honest"
RESOLVED: Final = VerdictStatus.RESOLVED.value
MASKED: Final = "masked"
NO_FIX: Final = "no fix"
_TESTS_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Graded:
    """A variant and what became of it."""

    instance: str
    kind: str
    status: str
    why: str = ""


@program(
    option("dataset", nargs="?", default="release-pairs"),
    option("--only", default="", help="tasks whose ids hold this"),
    option("--kind", default="", help="variants whose kinds hold this"),
    option("--sample", type=int, default=0, help="so many variants of each task"),
    option("--parallel", type=int, default=3, help="variants at a time"),
    option("--workdir", type=Path, help="the checked-out repository of one row"),
    option("--python", type=Path, help="the Python that runs its tests"),
)
async def main(given: Namespace) -> Report:
    """Grade all variants; each has to resolve its task."""
    named = named_dataset(given.dataset, include=(), skip_bad_rows=True, with_files=None)
    sandbox: SandboxSpec = named.sandbox_of(None)
    instances: Sequence[Instance] = await named.load()
    if given.workdir:
        checkout = CheckoutSpec(
            workdir=str(given.workdir.absolute()), python=str(given.python.absolute())
        )
        sandbox = SandboxSpec(local=LocalSandbox(checkout=checkout))
        instances = of_checkout(instances, given.workdir)
    instances = [each for each in instances if given.only in each.instance_id]
    found: list[Graded] = []
    async with AsyncExitStack() as stack:
        setup = SandboxSetup(instances, _JOB, lambda _: None, harmless=True)
        scene = _Scene(open_sandboxes(sandbox, setup, stack), found)
        grader = Grader(scene.provider, log_parser=named.log_parser)
        slots = asyncio.Semaphore(given.parallel)
        for instance in instances:
            every = variants(await scene.fixed(instance))
            made = [pair for pair in every if given.kind in pair[0]]
            if given.sample:
                chance = random.Random(instance.instance_id)  # noqa: S311 (the same again)
                made = chance.sample(made, min(given.sample, len(made)))

            async def one(number: int, kind: str, files: Files, task: Instance = instance) -> None:
                async with slots:
                    await scene.grade(grader, task, number, kind, files)

            await asyncio.gather(*(one(n, *pair) for n, pair in enumerate(made, 1)))
    return _report(found)


@dataclass(frozen=True, slots=True)
class _Scene:
    provider: SandboxProvider
    found: list[Graded]

    async def fixed(self, instance: Instance) -> list[Fixed]:
        """Return the files of Python that the gold patch changes."""
        sandbox, _ = await self._start(instance, 0)
        try:
            before, wanted = (
                {},
                [p for p in touched_paths(instance.gold_patch) if p.endswith(".py")],
            )
            for path in wanted:
                before[path] = await _text(sandbox, path)
            await _apply(sandbox, instance)
            return [
                Fixed(path, before[path] or "", text)
                for path in wanted
                if (text := await _text(sandbox, path)) is not None
            ]
        finally:
            await sandbox.close()

    async def grade(
        self, grader: Grader, instance: Instance, number: int, kind: str, files: Files
    ) -> None:
        episode = EpisodeId(_JOB, instance.instance_id, number)
        try:
            async with self._changed(instance, number, files) as (sandbox, base):
                patch = await repository.diff(sandbox, base)
            verdict = await grader.grade(instance, patch, episode=episode)
            status, why = verdict.status.value, "; ".join(verdict.integrity)
            if not verdict.resolved and not await self._is_fix(grader, instance, number, files):
                status = NO_FIX
            if not verdict.resolved:
                why = why or verdict.log_tail[-500:]
        except EpisodeError as error:
            status, why = MASKED, str(error)
        self.found.append(Graded(instance.instance_id, kind, status, why))
        lost = f" LOST: {why[:300]}" if status not in (RESOLVED, NO_FIX) else ""
        sys.stderr.write(f"{instance.instance_id:22}{kind:36}{status}{lost}\n")

    async def _is_fix(self, grader: Grader, instance: Instance, number: int, files: Files) -> bool:
        """Run the tests where the variant is made: all that it changes belongs to the base."""
        async with self._changed(instance, number, files) as (sandbox, _):
            run = Run(instance, "", _TESTS_S, grader.site.parser(instance))
            return (await run.result(sandbox)).status is VerdictStatus.RESOLVED

    @asynccontextmanager
    async def _changed(
        self, instance: Instance, number: int, files: Files
    ) -> AsyncIterator[tuple[Sandbox, str]]:
        """Start a sandbox with a variant in it; yield it, and its base."""
        sandbox, base = await self._start(instance, number)
        try:
            await _apply(sandbox, instance)
            for path, text in files.items():
                place = f"{sandbox.workdir}/{path}"
                if text is None:
                    await sandbox.exec(["rm", place])
                    continue
                await sandbox.exec(["mkdir", "-p", str(Path(place).parent)])
                await sandbox.write_file(place, text.encode())
            yield sandbox, base
        finally:
            await sandbox.close()

    async def _start(self, instance: Instance, number: int) -> tuple[Sandbox, str]:
        episode = EpisodeId(_JOB, instance.instance_id, number)
        request = SandboxRequest(episode, Role.AGENT, instance.image, instance.workdir)
        sandbox = await self.provider.start(request)
        return sandbox, await repository.prepare(sandbox, instance)


async def _apply(sandbox: Sandbox, instance: Instance) -> None:
    applied = await sandbox.exec("git apply -", stdin=instance.gold_patch.encode())
    if not applied.ok:
        raise SandboxError("the fix does not apply", why=repository.failure_text(applied))


async def _text(sandbox: Sandbox, path: str) -> str | None:
    try:
        return (await sandbox.read_file(f"{sandbox.workdir}/{path}")).decode()
    except FileNotFoundError:
        return None


def _report(found: Sequence[Graded]) -> Report:
    rows = [_row(task, found) for task in dict.fromkeys(each.instance for each in found)]
    lost = [each for each in found if each.status not in (RESOLVED, NO_FIX)]
    rows += [
        Row(f"{each.instance}: {each.kind}", labels={"status": each.status, "why": each.why})
        for each in lost
    ]
    statuses: Mapping[str, int] = Counter(each.status for each in found)
    ratios = {"variants": float(len(found)), **{name: float(n) for name, n in statuses.items()}}
    goal = "goal: every variant that is a fix resolves its task; none is tampered, none masked"
    return Report("honest", tuple(rows), ok=bool(found) and not lost, ratios=ratios, notes=(goal,))


def _row(task: str, found: Sequence[Graded]) -> Row:
    own = Counter(each.status for each in found if each.instance == task)
    return Row(task, {"variants": float(own.total()), **{k: float(v) for k, v in own.items()}})
