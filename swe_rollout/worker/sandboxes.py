"""Open the sandbox back end that a job names.

`SANDBOXES` is the extension point: a built-in back end is a factory over a `SandboxSetup`; one of a
user's own is a `SandboxProvider`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TypeAlias

from swe_rollout.cluster.objects import OwnerReference
from swe_rollout.errors import InternalError, SandboxError
from swe_rollout.extension import ExtensionPoint
from swe_rollout.sandbox.base import SandboxProvider
from swe_rollout.sandbox.kodo.provider import KodoProvider
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.sandbox.session.keys import SessionKeys
from swe_rollout.spec.sandbox import KodoSandbox, LocalSandbox, PodSandbox, SandboxSpec
from swe_rollout.types.instance import Instance
from swe_rollout.worker.checkouts import open_checkout


@dataclass(frozen=True, slots=True)
class SandboxSetup:
    """The job that sandboxes are for."""

    instances: Sequence[Instance]
    job: str
    on_note: Callable[[str], None]
    harmless: bool = False
    """No model writes the commands: a scripted policy does, or the tasks' authors did."""
    owner: OwnerReference | None = None
    """The job's object on a cluster; its pods are deleted with it."""
    on_start_warning: Callable[[SandboxError], None] | None = None
    """Called with the reason when a pod is about to fail."""


SandboxFactory: TypeAlias = "Callable[..., SandboxProvider]"

SANDBOXES: ExtensionPoint[SandboxProvider | SandboxFactory] = ExtensionPoint(
    "sandbox back end",
    group="swe_rollout.sandboxes",
    accepts=lambda value: isinstance(value, SandboxProvider) or callable(value),
    expected="a SandboxProvider: a class with start, prewarm, delete_orphans and aclose",
    builtin={
        "local": "swe_rollout.worker.sandboxes:open_local",
        "pod": "swe_rollout.worker.sandboxes:open_pods",
        "kodo": "swe_rollout.worker.sandboxes:open_kodo",
    },
)


def open_sandboxes(
    spec: SandboxSpec, setup: SandboxSetup, stack: AsyncExitStack
) -> SandboxProvider:
    """Open the provider that the spec names; `stack` ends it with its sandboxes.

    Raises PrerequisiteError when sandboxes for the instances can't be started, ExtensionError when
    the back end can't be made.
    """
    parameters: dict[str, object]
    match spec.local, spec.pod, spec.kodo, spec.backend:
        case local, None, None, None if local is not None:
            use, parameters = "local", {"options": local}
        case None, pod, None, None if pod is not None:
            use, parameters = "pod", {"options": pod}
        case None, None, kodo, None if kodo is not None:
            use, parameters = "kodo", {"options": kodo}
        case None, None, None, own if own is not None:
            use, parameters = own.use, own.with_
        case _:
            raise InternalError("the spec's rule of one sandbox was not checked")
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
    """Say that tasks ask for a network that they don't get."""
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


def open_kodo(setup: SandboxSetup, *, options: KodoSandbox) -> SandboxProvider:
    """Open sandboxes that are containers of kodo."""
    provider = KodoProvider(options)
    if provider.warning:
        setup.on_note(f"warning: {provider.warning}")
    return provider
