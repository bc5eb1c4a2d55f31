"""The registry of peers' tool-call parsers."""

from __future__ import annotations

from rollout_dev.peers.environment import HOW, is_installed
from rollout_dev.peers.parser_base import PeerParser
from rollout_dev.peers.renderers_calls import Renderers
from rollout_dev.peers.sglang_calls import Sglang
from rollout_dev.peers.sglang_calls import is_installed as sglang_is_installed
from rollout_dev.peers.strands_calls import Strands


def installed_peers() -> tuple[PeerParser, ...]:
    """Return the peers whose parsers can be run here."""
    return tuple(peer for peer, is_there, _ in _peers() if is_there)


def absent_peers() -> dict[str, str]:
    """Return how to install each of the other peers, by name."""
    absent = {peer.name: how for peer, is_there, how in _peers() if not is_there}
    if not is_installed("ray"):
        absent["verl"] = "its parsers import ray, which scripts/peers leaves out"
    return absent


def _peers() -> tuple[tuple[PeerParser, bool, str], ...]:
    return (
        (Strands(), is_installed("strands_sglang"), HOW),
        (Renderers(), is_installed("renderers"), HOW),
        (Sglang(), sglang_is_installed(), "run scripts/sglang-cpu setup"),
    )
