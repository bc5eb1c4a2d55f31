"""The sandboxes of a job: a model's commands never run on this machine unasked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout import RolloutJob
from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.types.instance import Instance
from swe_rollout.worker.sandboxes import SandboxSetup, open_sandboxes
from unit.launcher.row_parts import SPEC, row

pytestmark = pytest.mark.threat(point=5)


@pytest.fixture(autouse=True)
def _without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    bubblewrap.refusal.cache_clear()
    yield
    bubblewrap.refusal.cache_clear()


def run(folder: Path, policy: dict[str, object], **sandbox: str) -> None:
    """Run a suspended job, which opens its sandboxes and starts none."""
    (folder / "images" / "demo").mkdir(parents=True)
    (folder / "images" / "demo" / "image.json").write_text("{}")
    spec = {
        **SPEC,
        "policy": policy,
        "store": {"uri": f"file://{folder}/store"},
        "sandbox": {"local": {"images": str(folder / "images"), **sandbox}},
        "suspend": True,
    }
    RolloutJob.from_rows([row()], name="mine", spec=spec).run()


@pytest.mark.parametrize(
    "policy",
    [
        {"sglang": {"url": "http://127.0.0.1:9"}},
        {"engine": {"use": "some.engine:Engine"}},
    ],
)
def test_a_model_without_bubblewrap_is_refused_with_both_cures(
    tmp_path: Path, policy: dict[str, object]
) -> None:
    with pytest.raises(PrerequisiteError, match="can't be isolated") as caught:
        run(tmp_path, policy)
    assert "apt-get install bubblewrap" in caught.value.fix
    assert "isolation: none" in caught.value.fix


def test_a_script_without_bubblewrap_runs_with_a_warning(tmp_path: Path) -> None:
    run(tmp_path, {"scripted": {}})


def test_a_script_can_ask_for_isolation_too(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="can't be isolated"):
        run(tmp_path, {"scripted": {}}, isolation="bubblewrap")


@pytest.mark.parametrize("network", ["none", "requested"])
def test_tasks_that_ask_for_a_network_in_vain_are_named(network: str) -> None:
    notes: list[str] = []
    asking = Instance(
        instance_id="one", problem_statement="fix it", image="demo", wants_network=True
    )
    setup = SandboxSetup([asking, replace(asking, wants_network=None)], "job", notes.append)
    spec = SandboxSpec.model_validate({"pod": {"network": network}})
    open_sandboxes(spec, setup, AsyncExitStack())
    named = [note for note in notes if note.startswith("one may need a network")]
    assert len(named) == (network == "none")
