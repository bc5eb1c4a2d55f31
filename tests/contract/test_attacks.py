"""Attacks on the supervisor, the diff and the grading of local sandboxes: none succeeds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rollout_dev.conformance.attacks.attack import (
    DIFF_ATTACKS,
    PATCH_ATTACKS,
    SUPERVISOR_ATTACKS,
    Attack,
    DiffAttack,
    PatchAttack,
)
from rollout_dev.conformance.attacks.trials import (
    Site,
    diff_trial,
    local_site,
    patch_trial,
    script_trial,
)
from swe_rollout.sandbox.local import bubblewrap

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs bubblewrap: apt-get install bubblewrap"
)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with local_site() as opened:
        yield opened


@pytest.mark.threat(point=1)
@pytest.mark.parametrize("attack", SUPERVISOR_ATTACKS, ids=lambda each: each.name)
async def test_an_attack_on_the_supervisor_fails(site: Site, attack: Attack) -> None:
    trial = await script_trial(site, attack)
    assert trial.held, trial.outcome


@pytest.mark.threat(point=6)
@pytest.mark.parametrize("attack", DIFF_ATTACKS, ids=lambda each: each.name)
async def test_an_attack_on_the_diff_fails(site: Site, attack: DiffAttack) -> None:
    trial = await diff_trial(site, attack)
    assert trial.held, trial.outcome


@pytest.mark.threat(point=2)
@pytest.mark.parametrize("attack", PATCH_ATTACKS, ids=lambda each: each.name)
async def test_an_attack_on_grading_fails(site: Site, attack: PatchAttack) -> None:
    trial = await patch_trial(site, attack)
    assert trial.held, trial.outcome
