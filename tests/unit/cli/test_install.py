"""`install` and `uninstall`: what they print, and which images `install` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from swe_rollout.cli import install
from swe_rollout.cli.install import is_pinned, manifests
from swe_rollout.errors import UsageError
from unit.cli.cli_parts import Cli, without_cluster

DIGEST = f"sha256:{'0a' * 32}"
FOR_JOBS = {
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


@pytest.mark.parametrize(
    ("image", "pinned"),
    [
        (f"registry.example/team/worker@{DIGEST}", True),
        (f"registry.example:5000/worker:1.2@{DIGEST}", True),
        (f"[2001:db8::1]:5000/worker@{DIGEST}", True),
        ("registry.example/team/worker:1.2", False),
        ("localhost:5000/worker", False),
        ("swe-rollout/worker:local", False),
        ("a/b__c/d-e.f", False),
    ],
)
def test_an_image_is_pinned_by_its_digest_alone(image: str, pinned: bool) -> None:  # noqa: FBT001
    assert is_pinned(image) is pinned


@pytest.mark.parametrize(
    "image",
    [
        "",
        "two words",
        "Team/Worker:1",
        "registry.example/worker:",
        "registry.example/worker@sha256:12ab",
        f"registry.example/worker@{DIGEST.upper()}",
        f"registry.example/worker@md5:{'0' * 32}",
        f"https://registry.example/worker@{DIGEST}",
        "worker:1\n  hostNetwork: true",
        "worker:1 # comment",
        "worker/" + "a" * 10_000 + "!",
    ],
)
def test_what_is_no_image_is_refused_with_its_form(image: str) -> None:
    with pytest.raises(UsageError) as refused:
        manifests(image)

    assert "@sha256:" in refused.value.fix


def test_a_tag_is_a_warning_with_the_cure_and_a_digest_is_none(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_cluster(monkeypatch, tmp_path)
    tag, digest = "registry.example/worker:1", f"registry.example/worker@{DIGEST}"

    printed = cli("install", "--print", "--image", tag)
    assert "warning: registry.example/worker:1 is a tag" in printed.err
    assert "--image NAME@sha256:" in printed.err
    objects = list(yaml.safe_load_all(printed.out))
    assert objects == list(yaml.safe_load_all(manifests(tag)))
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == tag
    assert {"name": "WORKER_IMAGE", "value": tag} in container["env"]

    for arguments in (["--image", digest], []):
        assert cli("install", "--print", *arguments).err == ""


def uninstalled(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, *arguments: str, is_shared: bool
) -> list[dict[str, Any]]:
    async def deleted_jobs(*_: object, **__: object) -> bool:
        return is_shared

    monkeypatch.setattr(install, "_uninstall", deleted_jobs)
    return list(yaml.safe_load_all(cli("uninstall", *arguments).out))


@pytest.mark.parametrize("is_shared", [False, True])
def test_everything_goes_in_the_reverse_order_but_a_namespace_that_others_use(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    is_shared: bool,  # noqa: FBT001
) -> None:
    printed = uninstalled(cli, monkeypatch, "--yes", is_shared=is_shared)

    whole = list(yaml.safe_load_all(manifests()))[::-1]
    assert printed == (whole[:-1] if is_shared else whole)
    assert whole[-1]["kind"] == "Namespace"


def test_what_jobs_need_stays_with_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = uninstalled(cli, monkeypatch, "--keep-jobs", is_shared=False)

    kinds = {each["kind"] for each in printed}
    assert FOR_JOBS & kinds == set()
    roles = [each["metadata"]["name"] for each in printed if each["kind"] == "ClusterRole"]
    assert roles == ["swe-rollout-operator"]
    assert {"Deployment", "ServiceAccount", "ClusterRoleBinding", "Namespace"} <= kinds
