"""`uninstall`: what it prints is what `install` prints, last first, or the part that may go."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import yaml

from swe_rollout.cli.install import manifests
from unit.cli.cli_parts import run_cli

FOR_JOBS = {
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@pytest.mark.parametrize("is_shared", [False, True])
def test_everything_goes_in_the_reverse_order_but_a_namespace_that_others_use(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_shared: bool,  # noqa: FBT001
) -> None:
    printed = printed_by(monkeypatch, capsys, "--yes", is_shared=is_shared)

    whole = list(yaml.safe_load_all(manifests()))[::-1]
    assert printed == (whole[:-1] if is_shared else whole)
    assert whole[-1]["kind"] == "Namespace"


def test_what_jobs_need_stays_with_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = printed_by(monkeypatch, capsys, "--keep-jobs", is_shared=False)

    assert FOR_JOBS & {each["kind"] for each in printed} == set()
    roles = [each["metadata"]["name"] for each in printed if each["kind"] == "ClusterRole"]
    assert roles == ["swe-rollout-operator"]
    assert {"Deployment", "ServiceAccount", "ClusterRoleBinding", "Namespace"} <= {
        each["kind"] for each in printed
    }


def printed_by(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
    is_shared: bool,
) -> list[dict[str, Any]]:
    async def deleted_jobs(*_: object, **__: object) -> bool:
        return is_shared

    module = importlib.import_module("swe_rollout.cli.install")
    monkeypatch.setattr(module, "_uninstall", deleted_jobs)
    assert run_cli(monkeypatch, "uninstall", *arguments) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))
