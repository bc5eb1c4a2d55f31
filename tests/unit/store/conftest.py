"""A store in a folder, and object storage whose responses a test chooses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from swe_rollout.store.store import Store
from unit.store.storage_server import CLOUDS, Environment, Respond, Serve, Storage, storage

PREFIXES = ("AWS_", "GOOGLE_", "AZURE_")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}/runs")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Set exactly these variables of clouds."""

    def change(values: dict[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith(PREFIXES)]:
            monkeypatch.delenv(name)
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return change


@pytest.fixture
def serve(environment: Environment) -> Serve:
    """Serve a cloud whose bucket has that address, and name it in the environment."""

    @contextmanager
    def serving(respond: Respond, uri: str = "s3://bucket/folder") -> Iterator[Storage]:
        with storage(respond) as server:
            environment(CLOUDS[uri](server.url))
            yield server

    return serving
