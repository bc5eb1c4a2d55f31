"""A client of the cluster, and namespaces that live as long as a module or a test."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.needs import KUBECONFIG
from cluster.pods import at_once, end_namespace, make_namespace
from swe_rollout.cluster.client import ClusterClient


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
