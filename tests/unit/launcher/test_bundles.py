"""Bundles of tools are packed where a job starts, and reach workers through its store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_rollout import RolloutJob
from swe_rollout.agent.tools import toolbox
from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.launcher.uploads import pack_bundles
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.template import template
from swe_rollout.worker.extensions import import_extensions
from unit.agent.tools.bundle.bundle_parts import folder
from unit.launcher.row_parts import row


def job_file(parent: Path, *paths: str) -> Path:
    path = parent / "job.yaml"
    tools = ", ".join(f"{{use: bundle, with: {{path: {each}}}}}" for each in paths)
    job = parse_job(template(), source="job", overrides=[f"spec.agent.tools=[bash, {tools}]"])
    path.write_text(json.dumps(job.to_yaml_dict()))
    return path


async def test_a_bundle_travels_with_the_job_under_its_digest(tmp_path: Path) -> None:
    made = folder(tmp_path, search="#!/bin/sh\n", edit="#!/bin/sh\n")
    store = f"spec.store.uri=file://{tmp_path}/store"

    job = RolloutJob.from_yaml(job_file(tmp_path, "tools/"), [store])
    (entry,) = job.spec.extensions
    assert entry.name == "tools.bundle"
    assert job.spec.agent.tools[1].with_ == {"path": "tools/", "sha256": entry.sha256}
    with pytest.raises(PrerequisiteError, match=r"tools\.bundle is not in the store") as refused:
        await import_extensions(job)
    assert "the folder tools" in refused.value.fix

    await job._put()
    await import_extensions(job)
    assert [spec.name for spec in toolbox(job.spec.agent.tools).specs] == ["bash", "search", "edit"]
    (made / "edit").write_text("#!/bin/sh\nexit 1\n")
    changed = RolloutJob.from_yaml(job_file(tmp_path, "tools/"), [store])
    assert changed.digest != job.digest


def test_a_resolved_job_runs_again_where_the_folder_is_not(tmp_path: Path) -> None:
    folder(tmp_path, search="#!/bin/sh\n")
    job = RolloutJob.from_yaml(job_file(tmp_path, "tools"))

    again, files = pack_bundles(job, base_dir=tmp_path / "elsewhere")

    assert files == ()
    assert again.digest == job.digest


def test_a_job_over_rows_in_memory_packs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path, search="#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    tools = [{"use": "bundle", "with": {"path": "tools"}}]

    job = RolloutJob.from_rows(
        [row()], name="rows", spec={"policy": {"scripted": {}}, "agent": {"tools": tools}}
    )

    assert [entry.name for entry in job.spec.extensions] == ["tools.bundle"]


def test_a_folder_that_can_t_travel_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no bundle of tools at tools"):
        RolloutJob.from_yaml(job_file(tmp_path, "tools"))
    folder(tmp_path, search="#!/bin/sh\n")
    (tmp_path / "other").mkdir()
    folder(tmp_path / "other", find="#!/bin/sh\n")

    with pytest.raises(UsageError, match="two bundles of tools are named tools"):
        RolloutJob.from_yaml(job_file(tmp_path, "tools", "other/tools"))
    (tmp_path / "tools").rename(tmp_path / "my tools")
    with pytest.raises(UsageError, match=r"can't be named my tools\.bundle"):
        RolloutJob.from_yaml(job_file(tmp_path, "'my tools'"))
