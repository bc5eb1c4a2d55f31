"""The registry of token keepers: peers, installed or not, and two plain ways."""

from __future__ import annotations

from importlib.metadata import version

from rollout_dev.peers.environment import HOW, is_installed
from rollout_dev.peers.plain_tokens import floor, rerender
from rollout_dev.peers.token_base import FLOOR, RERENDER, Bind, Keeper, Start
from swe_rollout.agent.renderer import Renderer


def keepers() -> tuple[Keeper, ...]:
    """Return every peer, the floor, and the classic mistake."""
    return (
        _peer("strands-sglang", "strands_sglang", _strands),
        _peer("renderers", "renderers", _renderers),
        _peer("verl", "verl", _verl),
        Keeper(FLOOR, floor),
        Keeper(RERENDER, rerender),
    )


def _peer(name: str, package: str, bind: Bind) -> Keeper:
    if not is_installed(package):
        return Keeper(name, bind, skipped=HOW)
    return Keeper(f"{name} {version(name)}", bind)


# A peer is imported on demand: it may not be installed, and takes seconds.
def _strands(renderer: Renderer) -> Start:
    from rollout_dev.peers.strands_tokens import start  # noqa: PLC0415

    return start(renderer)


def _renderers(renderer: Renderer) -> Start:
    from rollout_dev.peers.renderers_tokens import start  # noqa: PLC0415

    return start(renderer)


def _verl(renderer: Renderer) -> Start:
    from rollout_dev.peers.verl_tokens import start  # noqa: PLC0415

    return start(renderer)
