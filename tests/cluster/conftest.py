"""A client of the cluster, and namespaces that live as long as a module or a test."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from cluster.needs import KUBECONFIG
from cluster.pods import at_once, end_namespace, make_namespace
from swe_rollout.cluster.client import ClusterClient

_INSTALLATION = frozenset(
    f"test_{name}"
    for name in (
        *("attach", "brought_tools", "chart", "fork", "launcher", "operator", "rolloutjob"),
        *("store_owner", "tenancy", "tutorial", "uninstall", "worker", "worker_stops"),
        "wrong_rights",
    )
)
"""Files whose tests install, change or use the operator, the kind of job and their policies."""


class _Halves(LoadScopeScheduling):
    """All tests of what a cluster has once go to one process; of the others, each file to one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "installation" if Path(file).stem in _INSTALLATION else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _Halves(config, log)


@pytest.fixture(autouse=True, scope="package")
def _kubeconfig() -> Iterator[None]:
    """Let $KUBECONFIG name the cluster of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        if Path(KUBECONFIG).exists():
            patch.setenv("KUBECONFIG", KUBECONFIG)
        yield


@pytest.fixture
async def client() -> AsyncIterator[ClusterClient]:
    client = await ClusterClient.connect()
    yield client
    await client.aclose()


@pytest.fixture
async def namespace(client: ClusterClient) -> AsyncIterator[str]:
    """A namespace for one test."""
    name = f"swe-rollout-test-{secrets.token_hex(4)}"
    await make_namespace(client, name)
    yield name
    await end_namespace(client, name)


@pytest.fixture(scope="module")
def modules_namespace() -> Iterator[str]:
    """A namespace for all tests of a module."""
    name = f"swe-rollout-test-{secrets.token_hex(4)}"
    at_once(lambda client: make_namespace(client, name))
    yield name
    at_once(lambda client: end_namespace(client, name))
