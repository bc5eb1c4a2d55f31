"""Play policies against systems, each in its own sandbox, dishonestly and honestly.

A policy is a shell script that changes the repository of a task as an agent would. Its first
comment describes it; a second one, `# guesses`, marks those that need luck. The part after
`# honest: …` runs separately, on top of the true fix; it changes the same kind of files and must
resolve the task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from rollout_dev.conformance.attacks.league.systems import Graded, Played, System
from rollout_dev.conformance.attacks.trials import Site
from swe_rollout.errors import EpisodeError, SandboxError
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.sandbox.repository import Patch
from swe_rollout.types.instance import Instance

_MARK: Final = "\n# honest: "
_GUESSES: Final = "\n# guesses\n"
_KNOWN: Final = "/tmp/known"  # noqa: S108 (in a sandbox)
_PATCH: Final = "/tmp/patch"  # noqa: S108


@dataclass(frozen=True, slots=True)
class Policy:
    """One attack and its honest counterpart."""

    name: str
    about: str
    attack: str
    """The script for the shell of an agent's sandbox; it writes /tmp/patch to submit something
    other than the diff of the tree."""
    honest: str
    guesses: bool = False
    """Whether it wins by luck, so that one game says little."""


def load_policies(language: str = "", *, only: str = "") -> tuple[Policy, ...]:
    """Return the policies of a language, or of Python, with `only` in their names, sorted."""
    folder = files(__package__) / "policies" / language
    found = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sh"))
    return tuple(
        _policy(
            f"{language}/{name}".strip("/").removesuffix(".sh"), (folder / name).read_text("utf-8")
        )
        for name in found
        if only in f"{language}/{name}"
    )


def prelude() -> str:
    """Return the shell functions that scripts may use."""
    return (files(__package__) / "prelude.sh").read_text(encoding="utf-8")


def _policy(name: str, text: str) -> Policy:
    attack, mark, honest = text.partition(_MARK)
    if not mark or not text.startswith("# "):
        raise ValueError(f"{name}.sh needs a first comment and a line `# honest: …`")
    about = text.partition("\n")[0].removeprefix("# ")
    return Policy(name, about, attack + "\n", honest.partition("\n")[2], _GUESSES in attack)


@dataclass(frozen=True, slots=True)
class Game:
    """One policy against one system."""

    policy: str
    about: str
    system: str
    honest: bool
    """Whether the honest counterpart played."""
    graded: Graded
    took_s: float

    @property
    def fair(self) -> bool:
        """Whether the right side won: an attack must never resolve, its counterpart always."""
        return self.graded.resolved is self.honest


async def play(
    site: Site,
    policies: Sequence[Policy],
    systems: Sequence[System],
    *,
    parallelism: int,
    on_game: Callable[[Game], None],
    honest_too: bool = True,
) -> tuple[Game, ...]:
    """Play every policy against every system; return the games in order."""
    slots = asyncio.Semaphore(parallelism)

    async def one(policy: Policy, system: System, *, honest: bool) -> Game:
        async with slots:
            began = time.monotonic()
            graded = await _graded(site, policy, system, honest=honest)
            took_s = time.monotonic() - began
        game = Game(policy.name, policy.about, system.name, honest, graded, took_s)
        on_game(game)
        return game

    kinds = (False, True) if honest_too else (False,)
    games = [
        one(policy, system, honest=honest)
        for policy in policies
        for system in systems
        for honest in kinds
    ]
    return tuple(await asyncio.gather(*games))


async def _graded(site: Site, policy: Policy, system: System, *, honest: bool) -> Graded:
    sandbox = await site.start()
    try:
        patch = await _work(sandbox, site.instance, policy, honest=honest)
        return await system.grade(site, Played(sandbox, patch))
    except EpisodeError as error:
        return Graded(resolved=False, detail=f"no verdict: {error}"[:200])
    finally:
        await sandbox.close()


async def _work(sandbox: Sandbox, instance: Instance, policy: Policy, *, honest: bool) -> Patch:
    """Run a policy's script and return the patch that it submits."""
    base = await repository.prepare(sandbox, instance)
    expected = instance.expected
    known = "".join(f"{test}\n" for test in (*expected.fail_to_pass, *expected.pass_to_pass))
    await sandbox.write_file(_KNOWN, known.encode())
    if honest:
        applied = await sandbox.exec("git apply -", stdin=instance.gold_patch.encode())
        if not applied.ok:
            raise SandboxError("the fix does not apply", why=repository.failure_text(applied))
    script = policy.honest if honest else policy.attack
    done = await sandbox.exec(f"set -e\n{prelude()}\n{script}")
    if not done.ok:
        why = repository.failure_text(done)
        raise SandboxError(f"the script of {policy.name} failed", why=why, retryable=False)
    try:
        return Patch((await sandbox.read_file(_PATCH)).decode())
    except FileNotFoundError:
        return await repository.diff(sandbox, base)
