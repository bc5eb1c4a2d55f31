"""The registry of peers: how to bind each to a container, and how to install a missing one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollout_dev.exec_clients import kubectl
from rollout_dev.exec_clients.base import ClientTarget, Runner
from rollout_dev.peers import environment


@dataclass(frozen=True, slots=True)
class Peer:
    """An exec client of another project."""

    name: str
    bind: Callable[[ClientTarget], Runner]
    missing: str = ""
    """How to install it; empty where it is installed."""


def peers() -> tuple[Peer, ...]:
    """All of them, installed or not."""
    return (
        Peer("kubernetes", _official),
        Peer("kubernetes.aio", _aio),
        Peer("kubernetes.aio, frames by hand", _aio_by_hand),
        Peer("lightkube", _light, _missing("lightkube", environment.HOW)),
        Peer("kubectl exec", kubectl.Kubectl, "" if kubectl.is_installed() else kubectl.HOW),
        Peer("kodo", _kodo, _missing("kodo", _KODO)),
    )


_KODO = "in .peers/venv: pip install git+https://github.com/baidubce/kodo"


def _missing(package: str, how: str) -> str:
    return "" if environment.is_installed(package) else how


def _official(target: ClientTarget) -> Runner:
    from rollout_dev.exec_clients.official import Official  # noqa: PLC0415 - a second to import

    return Official(target)


def _aio(target: ClientTarget) -> Runner:
    from rollout_dev.exec_clients.official_aio import Aio  # noqa: PLC0415 - a second to import

    return Aio(target)


def _aio_by_hand(target: ClientTarget) -> Runner:
    from rollout_dev.exec_clients.official_aio import AioByHand  # noqa: PLC0415 - a second to import

    return AioByHand(target)


def _light(target: ClientTarget) -> Runner:
    from rollout_dev.exec_clients.light import Light  # noqa: PLC0415 - a peer

    return Light(target)


def _kodo(target: ClientTarget) -> Runner:
    from rollout_dev.exec_clients.kodo import Kodo  # noqa: PLC0415 - a peer

    return Kodo(target)
