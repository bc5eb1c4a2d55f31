"""`install`: which images it takes, and what it says about those that can change."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from swe_rollout.cli.install import is_pinned, manifests
from swe_rollout.errors import UsageError
from unit.cli.cli_parts import run_cli, without_cluster

DIGEST = f"sha256:{'0a' * 32}"


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
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    without_cluster(monkeypatch, tmp_path)
    tag, digest = "registry.example/worker:1", f"registry.example/worker@{DIGEST}"

    assert run_cli(monkeypatch, "install", "--print", "--image", tag) == 0
    printed = capsys.readouterr()
    assert "warning: registry.example/worker:1 is a tag" in printed.err
    assert "--image NAME@sha256:" in printed.err
    assert list(yaml.safe_load_all(printed.out)) == list(yaml.safe_load_all(manifests(tag)))

    for arguments in (["--image", digest], []):
        assert run_cli(monkeypatch, "install", "--print", *arguments) == 0
        assert capsys.readouterr().err == ""
