"""Attacks on the supervisor, the diff and the grading of pods: none succeeds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cluster.needs import CLUSTER, KUBECONFIG
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
    patch_trial,
    pod_site,
    script_trial,
)

pytestmark = [*CLUSTER, pytest.mark.asyncio(loop_scope="module"), pytest.mark.threat(point=30)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncIterator[Site]:
    async with pod_site(KUBECONFIG) as opened:
        yield opened


@pytest.mark.parametrize("attack", SUPERVISOR_ATTACKS, ids=lambda each: each.name)
async def test_an_attack_on_the_supervisor_fails(site: Site, attack: Attack) -> None:
    trial = await script_trial(site, attack)
    assert trial.held, trial.outcome


@pytest.mark.parametrize("attack", DIFF_ATTACKS, ids=lambda each: each.name)
async def test_an_attack_on_the_diff_fails(site: Site, attack: DiffAttack) -> None:
    trial = await diff_trial(site, attack)
    assert trial.held, trial.outcome


@pytest.mark.parametrize("attack", PATCH_ATTACKS, ids=lambda each: each.name)
async def test_an_attack_on_grading_fails(site: Site, attack: PatchAttack) -> None:
    trial = await patch_trial(site, attack)
    assert trial.held, trial.outcome
