"""`explain` and `init`, and options on top of a job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.cli.job_file import default_sandbox, in_sandbox
from swe_rollout.cli.options import SandboxKind
from swe_rollout.spec.fields import all_fields
from swe_rollout.spec.load import parse_job
from swe_rollout.spec.sandbox import SandboxSpec
from swe_rollout.spec.template import template
from unit.cli.cli_parts import Cli


def test_a_sandbox_option_keeps_what_the_file_says_of_that_kind() -> None:
    job = parse_job(
        template(), source="", overrides=["spec.sandbox={local: {isolation: bubblewrap}}"]
    )

    local = in_sandbox(job, SandboxKind.LOCAL).spec.sandbox
    pod = in_sandbox(job, SandboxKind.POD).spec.sandbox

    assert local.local is not None
    assert local.local.isolation == "bubblewrap"
    assert pod.local is None
    assert pod.pod is not None


@pytest.mark.parametrize("kind", SandboxKind)
def test_every_back_end_can_be_chosen(kind: SandboxKind) -> None:
    assert getattr(default_sandbox(kind), kind) is not None
    assert set(SandboxKind) <= set(SandboxSpec.variants())


def test_explain_has_every_field_of_the_schema(cli: Cli) -> None:
    assert "turns <integer> default 50" in cli("explain", "spec.limits").out
    assert [each.dotted for each in all_fields() if not each.doc and len(each.path) > 1] == []


def test_init_writes_a_job_once(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    cli("init")

    assert "job.yaml already exists" in cli("init", code=2).err
    assert parse_job((tmp_path / "job.yaml").read_text(), source="job.yaml")
