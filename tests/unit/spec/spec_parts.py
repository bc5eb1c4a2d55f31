"""Job files of tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swe_rollout.errors import Problem, SpecError
from swe_rollout.spec.job import RolloutJob
from swe_rollout.spec.load import parse_job

GOOD = """\
apiVersion: swe-rollout.dev/v1alpha1
kind: RolloutJob
metadata: {name: demo}
spec:
  dataset: {releasePairs: {}}
  policy: {scripted: {}}
"""


def parsed(text: str = GOOD, *overrides: str) -> RolloutJob:
    return parse_job(text, source="job.yaml", overrides=overrides)


def refused(text: str = GOOD, *overrides: str) -> list[Problem]:
    """What is wrong with a job file."""
    with pytest.raises(SpecError) as caught:
        parsed(text, *overrides)
    return list(caught.value.problems)


def problems(text: str = GOOD, *overrides: str) -> list[str]:
    return [str(each) for each in refused(text, *overrides)]


def written(**spec: Any) -> str:
    """A job file with those fields in its spec, as JSON."""
    base: dict[str, Any] = {"dataset": {"releasePairs": {}}, "policy": {"scripted": {}}}
    headers = {"apiVersion": "swe-rollout.dev/v1alpha1", "kind": "RolloutJob"}
    return json.dumps({**headers, "metadata": {"name": "demo"}, "spec": base | spec})
