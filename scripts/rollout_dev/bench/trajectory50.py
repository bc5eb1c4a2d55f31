"""Fifty actions of a coding agent in a pod, and the time that they take over their commands alone.

`trajectory50.yaml` has the actions, which solve a release pair. Subjects take turns, each time in a
fresh pod, and all of them must end with the same diff. The floor is one shell in the pod that runs
all commands, with no exec in between. Ours are an agent's tools, `bash` and `str_replace_editor`;
peers have no file tools and edit by a command, as does our session by itself.
"""

from __future__ import annotations

import asyncio
import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
import yaml

from rollout_dev.bench.common import Times, rounds
from rollout_dev.exec_clients import catalog, ours
from rollout_dev.exec_clients.base import (
    ClientTarget,
    Runner,
    Site,
    open_site,
)
from rollout_dev.report import Report, Row, program
from swe_rollout.agent.tools import load_tool
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.datasets.release_pair_recipes import WORKDIR, load_pairs
from swe_rollout.sandbox.pods import pod_spec
from swe_rollout.sandbox.pods.provider import PodProvider
from swe_rollout.sandbox.pods.running import RunningPod

FLOOR: Final = "one shell in the pod"
COMMANDS: Final = f"{ours.NAME}, edits by commands"
STARTS: Final = "start of a pod"
GOAL_S: Final = 2.0
"""The most seconds over the floor, for all actions together."""
_SETTLE_S: Final = 1.0


class Action(msgspec.Struct, frozen=True):
    """One action of the agent."""

    run: str
    """A command; of an edit, the one that does the same."""
    edit: dict[str, object] | None = None
    """Arguments of the editor."""


ACTIONS: Final = msgspec.convert(
    yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8")), tuple[Action, ...]
)
_BASH: Final = load_tool("bash")
_EDITOR: Final = load_tool("str_replace_editor")
_BOUNDS: Final = ToolContext(timeout_s=120.0, output_bytes=16_384)
_IN_ONE_SHELL: Final = Action("\n".join(f"(\n{action.run}\n)" for action in ACTIONS))


class Agent(Protocol):
    """Carries out actions in one pod."""

    async def act(self, action: Action) -> object:
        """Carry out one action and read what it prints."""
        ...


@dataclass(frozen=True, slots=True)
class _Tools:
    """The tools of our agents."""

    pod: RunningPod

    async def act(self, action: Action) -> object:
        if action.edit is not None:
            return await _EDITOR.run(action.edit, self.pod, _BOUNDS)
        return await _BASH.run({"command": action.run}, self.pod, _BOUNDS)


@dataclass(frozen=True, slots=True)
class _Commands:
    """A client that runs commands only."""

    runner: Runner

    async def act(self, action: Action) -> object:
        return await self.runner.run(("bash", "-c", action.run))


@dataclass(frozen=True, slots=True)
class Subject:
    """Who carries out the actions."""

    name: str
    agent: Callable[[RunningPod], Agent]
    actions: Sequence[Action] = ACTIONS


@program(quick="fewer rounds", kubeconfig=True)
async def main(given: Namespace) -> Report:
    """Let all subjects carry out the actions."""
    image, count = load_pairs()["sqlparse"].image, 2 if given.quick else 5
    times, failed = Times(), dict[str, str]()
    async with open_site(given.kubeconfig, prefix="bench-50-", images=(image,)) as site:
        note = await ours.without_policy_if_forbidden(site)
        async with ours.provider(site) as provider:
            trial = partial(_trial, provider, image, itertools.count())
            subjects = list(_subjects(site))
            # The node reads the image's files for the first time.
            wanted = await trial(subjects[0], Times())
            for number in rounds(count):
                for subject in subjects[:: -1 if number % 2 else 1]:
                    if subject.name not in failed:
                        (end,) = await asyncio.gather(trial(subject, times), return_exceptions=True)
                        if end != wanted:
                            failed[subject.name] = f"it ended with {end!r}, not with {wanted!r}"
    notes = (f"medians of {count} rounds", *filter(None, (note,)))
    return _report([subject.name for subject in subjects], times, failed, notes)


def _subjects(site: Site) -> Iterator[Subject]:
    yield Subject(FLOOR, lambda pod: _Commands(ours.Ours(pod)), (_IN_ONE_SHELL,))
    yield Subject(ours.NAME, _Tools)
    yield Subject(COMMANDS, lambda pod: _Commands(ours.Ours(pod)))
    for peer in catalog.peers():
        if not peer.missing and peer.name != "kubernetes.aio":
            yield Subject(peer.name, partial(_peer, peer, site))


def _peer(peer: catalog.Peer, site: Site, pod: RunningPod) -> Agent:
    where = (str(site.kubeconfig), site.context, site.namespace, pod.name, pod_spec.CONTAINER)
    return _Commands(peer.bind(ClientTarget(*where)))


async def _trial(
    provider: PodProvider, image: str, numbers: Iterator[int], subject: Subject, times: Times
) -> str:
    """Carry out the actions in a fresh pod; return a checksum of the diff."""
    request = replace(ours.request(image, next(numbers)), workdir=WORKDIR)
    with times.timed(STARTS):
        pod = await provider.start(request)
    agent = subject.agent(pod)
    await agent.act(Action("true"))  # Imports and connections are not an action's.
    with times.timed(subject.name):
        for action in subject.actions:
            await agent.act(action)
    diff = await pod.exec("git diff --cached | cksum")
    if isinstance(agent, _Commands):
        await agent.runner.aclose()
    await pod.close()
    await asyncio.sleep(_SETTLE_S)
    return diff.stdout.decode().strip()


def _report(
    subjects: Sequence[str], times: Times, failed: dict[str, str], notes: tuple[str, ...]
) -> Report:
    floor_s = times.p50_s(FLOOR)
    rows = [Row(STARTS, {"p50_s": round(times.p50_s(STARTS), 3)})]
    for name in subjects:
        if name in failed:
            rows.append(Row(name, skipped=failed[name][:300]))
            continue
        over_s = times.p50_s(name) - floor_s
        figures = {"p50_s": round(times.p50_s(name), 3)}
        if name != FLOOR:
            figures |= {
                "over_commands_s": round(over_s, 3),
                "over_commands_per_action_ms": round(over_s / len(ACTIONS) * 1e3, 1),
                "with_start_s": round(times.p50_s(name) + times.p50_s(STARTS), 3),
            }
        rows.append(Row(name, figures))
    rows += [Row(peer.name, skipped=peer.missing) for peer in catalog.peers() if peer.missing]
    python = sum("python " in each.run for each in ACTIONS)
    ok = ours.NAME not in failed and times.p50_s(ours.NAME) - floor_s <= GOAL_S
    return Report(
        "trajectory50",
        tuple(rows),
        ok=ok,
        ratios={} if ours.NAME in failed else {"ours_to_floor": times.ratio(ours.NAME, FLOOR)},
        notes=(
            f"goal: all {len(ACTIONS)} actions at most {GOAL_S:g} s over their commands",
            f"{sum(bool(each.edit) for each in ACTIONS)} edits, {python} runs of Python or pytest",
            "Daytona's study: 20.1 s on Kubernetes, 12.9 s on its own; its commands are not known",
            *notes,
        ),
    )
