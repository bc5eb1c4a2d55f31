"""A session's sandboxes are as strict as what its commands come from."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swe_rollout.context import JobContext
from swe_rollout.engine.base import TokenEngine
from swe_rollout.errors import UsageError
from swe_rollout.launcher.logged_progress import log_progress
from swe_rollout.spec.load import parse_job, parse_spec
from swe_rollout.types.instance import Instance
from swe_rollout.worker import session as sessions
from swe_rollout.worker.sandboxes import SandboxSetup


class OpenedError(Exception):
    """The sandboxes were asked for."""


@pytest.mark.parametrize("engine", [None, "own"])
async def test_an_engine_of_the_callers_own_is_a_model_even_under_a_scripted_policy(
    engine: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[SandboxSetup] = []

    async def load(*_: object, **__: object) -> object:
        return SimpleNamespace(problems=(), notes=(), quarantined={}, instances=())

    def open_sandboxes(_: object, setup: SandboxSetup, __: object) -> object:
        asked.append(setup)
        raise OpenedError

    monkeypatch.setattr(sessions, "load_noted", load)
    monkeypatch.setattr(sessions, "open_sandboxes", open_sandboxes)
    document: dict[str, Any] = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "job"},
        "spec": {
            "dataset": {"releasePairs": {}},
            "policy": {"scripted": {}},
            "sandbox": {"local": {}},
            "store": {"uri": "file://runs"},
        },
    }
    job = parse_job(json.dumps(document), source="test")

    with pytest.raises(OpenedError):
        async with sessions.open_session(
            job,
            base_dir=tmp_path,
            publish=log_progress,
            on_note=lambda _: None,
            engine=cast("TokenEngine | None", engine),
        ):
            """Never opened."""

    assert [setup.harmless for setup in asked] == [engine is None]


async def test_samples_are_counted_from_0() -> None:
    spec: dict[str, object] = {
        "dataset": {"releasePairs": {}},
        "policy": {"scripted": {}},
        "sandbox": {"local": {}},
    }
    job = parse_spec(spec, name="job", source="test")
    task = Instance(instance_id="a", problem_statement="", image="image")
    session = sessions.Session(job, [task], cast("JobContext", None))
    with pytest.raises(UsageError, match="no sample -1"):
        await session.run_episode("a", sample=-1)
