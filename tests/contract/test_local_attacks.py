"""Hostile commands in local sandboxes: none gets what it wants, stalls us, or harms a neighbour."""

from __future__ import annotations

import pytest

from rollout_dev.conformance.attacks.attack import LOCAL_ATTACKS, Attack, Kind
from rollout_dev.conformance.attacks.local_scene import open_scene
from swe_rollout.sandbox.local import bubblewrap, cgroups

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs bubblewrap: apt-get install bubblewrap"
)
_POINTS = {Kind.PEEK: 3, Kind.SECRETS: 4, Kind.ESCAPE: 4, Kind.DENIAL: 6}
_COUNTED = {
    "memory of many processes",
    "memory that processes share",
    "memory that belongs to no process",
    "processes without end",
}


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(
            attack,
            id=attack.name.replace(" ", "-"),
            marks=pytest.mark.threat(point=_POINTS[attack.kind]),
        )
        for attack in LOCAL_ATTACKS
    ],
)
async def test_an_attack_on_a_local_sandbox_fails(attack: Attack) -> None:
    if attack.name in _COUNTED and not cgroups.find_parents():
        pytest.skip("needs the right to make control groups")
    async with open_scene() as scene:
        trial = await scene.run(attack)
    assert trial.held, trial.outcome
