"""The requirements of tests with pods: a cluster, and the images on its node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

KUBECONFIG = os.environ.get("KUBECONFIG") or str(
    Path(__file__).resolve().parents[2] / ".dev-cluster" / "kubeconfig"
)
CLUSTER = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not Path(KUBECONFIG).exists(), reason="needs a cluster: `scripts/dev-cluster up`"
    ),
]
BUSYBOX = "swe-rollout/busybox:local"
BASE = "swe-rollout/sandbox-base:local"

TIER = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        "KUBECONFIG" not in os.environ, reason="needs the dev cluster: run `make test-cluster`"
    ),
]
"""For tests that drive the cluster by its commands, whose KUBECONFIG `make test-cluster` sets."""
WITH_STORE = [
    *TIER,
    pytest.mark.skipif(
        "AWS_ENDPOINT_URL" not in os.environ, reason="needs the S3 server: run `make test-cluster`"
    ),
]
