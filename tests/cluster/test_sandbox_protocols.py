"""Other frameworks' protocols over pods: the contract of the unit tier."""

from __future__ import annotations

from functools import partial

import pytest

from cluster.needs import BASE, CLUSTER
from sandbox_protocols import Opener, ProtocolContract, RllmFace, SlimeFace

pytestmark = CLUSTER
SPEC = {
    "pod": {
        "namespace": "default",
        "resources": {"cpu": "50m", "memory": "256Mi", "ephemeralStorage": "512Mi"},
    }
}


class TestSlimeOverPods(ProtocolContract):
    short_life_s = 20.0

    @pytest.fixture
    def opener(self) -> Opener:
        return partial(SlimeFace.open, SPEC, image=BASE)


class TestRllmOverPods(ProtocolContract):
    short_life_s = 20.0

    @pytest.fixture
    def opener(self) -> Opener:
        return partial(RllmFace.open, SPEC, image=BASE)
