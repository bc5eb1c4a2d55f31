"""Open the sandbox back end that a job names.

`SANDBOXES` is the extension point: a built-in back end is a factory that takes a `SandboxSetup`; a
user's own is a `SandboxProvider`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from swe_rollout.cluster.objects import OwnerReference
from swe_rollout.errors import InternalError, PrerequisiteError, SandboxError
from swe_rollout.extension import ExtensionPoint
from swe_rollout.sandbox.base import SandboxProvider
from swe_rollout.sandbox.local.checkout import Checkout, head_commit
from swe_rollout.sandbox.local.environment import Environment, read_environment
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.session.keys import SessionKeys
from swe_rollout.spec.model import Use
from swe_rollout.spec.sandbox import (
    CheckoutSpec,
    LocalSandbox,
    PodSandbox,
    SandboxSpec,
)
from swe_rollout.text.paths import expanded
from swe_rollout.types.instance import Instance


@dataclass(frozen=True, slots=True)
class SandboxSetup:
    """What a back end needs to know about the job."""

    instances: Sequence[Instance]
    job: str
    on_note: Callable[[str], None]
    harmless: bool = False
    """Whether a scripted policy or the tasks' authors, not a model, write the commands."""
    owner: OwnerReference | None = None
    """The job's object on a cluster; the pods are deleted with it."""
    on_start_warning: Callable[[SandboxError], None] | None = None
    """Called with the reason if a pod is about to fail."""


SandboxFactory: TypeAlias = "Callable[..., SandboxProvider]"

SANDBOXES: ExtensionPoint[SandboxProvider | SandboxFactory] = ExtensionPoint(
    "sandbox back end",
    group="swe_rollout.sandboxes",
    accepts=lambda value: isinstance(value, SandboxProvider) or callable(value),
    expected="a SandboxProvider: a class with start, prewarm, delete_orphans and aclose",
    builtin={
        "local": "swe_rollout.worker.sandboxes:open_local",
        "pod": "swe_rollout.worker.sandboxes:open_pods",
        "kodo": "swe_rollout.sandbox.kodo.provider:open_kodo",
    },
)


def open_sandboxes(
    spec: SandboxSpec, setup: SandboxSetup, stack: AsyncExitStack
) -> SandboxProvider:
    """Open the provider that the spec names; `stack` closes it and ends its sandboxes.

    Raises PrerequisiteError if sandboxes for the instances can't be started, ExtensionError if the
    back end can't be created.
    """
    chosen = [(use, options) for use, options in spec if options is not None]
    if len(chosen) != 1:
        raise InternalError("the spec's rule of one sandbox was not checked")
    [(use, options)] = chosen
    parameters = {"options": options}
    if isinstance(options, Use):
        use, parameters = options.use, options.with_
    found = SANDBOXES.load(use, parameters)
    provider = found if isinstance(found, SandboxProvider) else found(setup)
    stack.push_async_callback(provider.aclose)
    return provider


def open_local(setup: SandboxSetup, *, options: LocalSandbox) -> SandboxProvider:
    """Open sandboxes in namespaces on this machine."""
    _note_networks(setup, options.network, "spec.sandbox.local.network")
    checkout = None
    if options.checkout is not None:
        checkout = open_checkout(options.checkout, setup.instances, setup.on_note)
    provider = LocalProvider(options, harmless=setup.harmless, checkout=checkout)
    if checkout is None:
        provider.require({instance.image for instance in setup.instances})
    if provider.warning:
        setup.on_note(f"warning: {provider.warning}")
    return provider


def _note_networks(setup: SandboxSetup, network: str, field: str) -> None:
    """Note that tasks ask for a network that they don't get."""
    wanting = [each.instance_id for each in setup.instances if each.wants_network]
    if wanting and network == "none":
        more = f" and {len(wanting) - 1} more" if wanting[1:] else ""
        setup.on_note(
            f"{wanting[0]}{more} may need a network, which sandboxes don't have: {field}: "
            "requested would give one to the tasks that ask for it"
        )


def open_pods(setup: SandboxSetup, *, options: PodSandbox) -> SandboxProvider:
    """Open sandboxes that are Kubernetes pods."""
    # Kubernetes' client takes most of a second to import.
    from swe_rollout.sandbox.pods.provider import PodProvider  # noqa: PLC0415

    _note_networks(setup, options.network, "spec.sandbox.pod.network")
    return PodProvider(
        options,
        job=setup.job,
        owner=setup.owner,
        on_start_warning=setup.on_start_warning,
        keys=SessionKeys.from_environment(),
    )


_SEVERAL: Final = 2
_PYTEST: Final = re.compile(r"^\s*(?:\w+=\S*\s+)*(?:python[\d.]*\s+-m\s+)?pytest\b", re.MULTILINE)
_TOX: Final = re.compile(r"^\s*(?:\w+=\S*\s+)*tox\b", re.MULTILINE)


def open_checkout(
    spec: CheckoutSpec, instances: Sequence[Instance], on_note: Callable[[str], None]
) -> Checkout:
    """Return the checkout from which these tasks' sandboxes are made.

    Raises PrerequisiteError if the tasks have different base commits, or if the environment does
    not run or lacks the test runner.
    """
    base = _shared_commit(instances)
    folder = _existing(Path(spec.workdir))
    environment = read_environment(expanded(spec.python))
    for instance in instances:
        _require_runner(instance, environment)
    return Checkout(folder, environment, base, on_note=on_note)


def _shared_commit(instances: Sequence[Instance]) -> str | None:
    commits = {instance.base_commit for instance in instances if instance.folder is None}
    if len(commits) == 1:
        return commits.pop()
    named = ", ".join(sorted(instance.instance_id for instance in instances)[:3])
    raise PrerequisiteError(
        "a checked-out repository stands for one task",
        why=f"there are {len(instances)} tasks: {named}, …",
        fix="choose one: --instance ID, or dataset.include in a job",
    )


def of_checkout(instances: Sequence[Instance], folder: Path) -> Sequence[Instance]:
    """Return the tasks whose base commit `folder` has checked out; all tasks if none match.

    Raises PrerequisiteError if there is no such folder.
    """
    folder = _existing(folder)
    if len(instances) < _SEVERAL:
        return instances
    head = head_commit(folder)
    return [each for each in instances if head and each.base_commit == head] or instances


def _existing(folder: Path) -> Path:
    folder = expanded(str(folder)).absolute()
    if not folder.is_dir():
        raise PrerequisiteError(
            f"there is no folder {folder}", fix="name the task's checked-out repository"
        )
    return folder


def _require_runner(instance: Instance, environment: Environment) -> None:
    """Raise PrerequisiteError if the environment lacks the program that runs the tests."""
    text = (instance.evaluation.script or "") + "\n".join(instance.evaluation.commands)
    text = text.replace(instance.test_patch, "") if instance.test_patch else text
    # The `tox` of a sandbox needs only pytest.
    is_there = (
        "pytest" in environment.programs
        if (command := _PYTEST.search(text)) and "python" not in command[0]
        else "pytest" in environment.modules
    )
    if (command or _TOX.search(text)) and not is_there:
        raise PrerequisiteError(
            f"the tests of {instance.instance_id} can't run in {environment.prefix}",
            why="it has no pytest",
            fix=f"{environment.executable} -m pip install pytest, in the version that the task's "
            "repository asks for",
        )
