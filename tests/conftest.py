"""What one test tells its process must not reach the next: secrets, and the recursion limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from swe_rollout.text import redaction

# A slow machine is no failure of a test.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redaction, "_ALL", redaction.Redactor())
    monkeypatch.setattr(redaction, "_IN_USE", redaction.Redactor())
    limit = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(limit)
