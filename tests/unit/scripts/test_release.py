"""`scripts/release-check`: what stops a release, and what does not.

Aspects: the version in one place; the changelog of the release; what a wheel and an sdist may have;
and that wheel and sdist of this checkout are the same bytes each time.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from checkout import ROOT
from rollout_dev import release
from rollout_dev.images import recipe

ENTRY = "### Added\n- Something.\n"
INFO = "swe_rollout-1.dist-info/licenses/LICENSE"
TRACKED = {"swe_rollout/a.py", "operator/rollout_operator/b.py"}
INSIDE = ("swe_rollout/a.py", "rollout_operator/b.py", INFO)


def test_the_version_stands_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert release.version_problems(ROOT) == []
    for version, problem in (("1.0-rc1", "as 1.0rc1"), ("next", "PEP 440")):
        monkeypatch.setattr(recipe, "project", lambda v=version: recipe.Project(v, "Apache-2.0"))
        assert problem in release.version_problems(ROOT)[0]
    monkeypatch.setattr(recipe, "project", lambda: recipe.Project("0.1.0rc1", "Apache-2.0"))
    assert [each.partition(":")[0] for each in release.version_problems(ROOT)] == [
        "swe_rollout/__init__.py",
        "sandbox_images/worker/Dockerfile",
        "charts/swe-rollout/Chart.yaml",
        "charts/swe-rollout/Chart.yaml (appVersion)",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"# Changelog\n\n## Unreleased\n\n## 1.2.0 - 2026-11-22\n\n{ENTRY}", ""),
        (f"## 1.2.0 - 2026-11-22\n\n{ENTRY}\n## 1.1.0 - 2026-01-01\n\n{ENTRY}", ""),
        ("", "the newest release is none"),
        (f"## Unreleased\n\n{ENTRY}", "the newest release is none"),
        (f"## 1.1.0 - 2026-01-01\n\n{ENTRY}", "the newest release is 1.1.0"),
        (f"## 1.2.0\n\n{ENTRY}", "has no date"),
        (f"## 1.2.0 - soon\n\n{ENTRY}", "has no date"),
        (f"## 1.2.0 - 2026-11-22\n\n## 1.1.0 - 2026-01-01\n\n{ENTRY}", "says nothing"),
        (f"## Unreleased\n\n{ENTRY}\n## 1.2.0 - 2026-11-22\n\n{ENTRY}", "Unreleased has entries"),
    ],
)
def test_a_changelog_without_the_release_is_a_problem(text: str, problem: str) -> None:
    found = release.changelog_problems(text, "1.2.0")

    assert [problem in each for each in found] == [True] * bool(problem)


def wheel(folder: Path, *names: str, content: bytes = b"x = 1\n") -> Path:
    path = folder / "swe_rollout-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as opened:
        for name in names:
            opened.writestr(name, content)
    return path


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (INSIDE[1:], "lacks swe_rollout/a.py"),
        (INSIDE[:2], "lacks the licence"),
        ((*INSIDE, "swe_rollout/notes.txt"), "has swe_rollout/notes.txt, which git does not"),
        ((*INSIDE, "swe_rollout/tests/test_a.py"), "has tests: swe_rollout/tests/test_a.py"),
    ],
)
def test_a_wheel_with_more_or_less_is_a_problem(
    names: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    assert release.wheel_problems(wheel(tmp_path, *INSIDE), TRACKED) == []

    found = release.wheel_problems(wheel(tmp_path, *names), TRACKED)

    assert any(problem in each for each in found)


def test_a_credential_and_data_in_a_wheel_are_problems(tmp_path: Path) -> None:
    key = b"TOKEN = 'hf_" + b"b2" * 16 + b"'\n"
    found = release.wheel_problems(wheel(tmp_path, *INSIDE, content=key), TRACKED)
    assert [each.rpartition(": ")[2] for each in found] == sorted(INSIDE[:2])

    large = wheel(tmp_path, *INSIDE, content=b"0" * (2 << 20))
    assert "is there data in it?" in release.wheel_problems(large, TRACKED)[0]


def test_what_git_does_not_know_is_in_no_sdist(tmp_path: Path) -> None:
    path = tmp_path / "swe_rollout-1.tar.gz"
    with tarfile.open(path, "w:gz") as opened:
        for name in ("PKG-INFO", "swe_rollout/a.py", "runs/demo/record.json"):
            opened.addfile(tarfile.TarInfo(f"swe_rollout-1/{name}"), io.BytesIO())

    [found] = release.sdist_problems(path, {"swe_rollout/a.py"})

    assert "runs/demo/record.json" in found


def test_two_builds_of_this_checkout_are_the_same_bytes(tmp_path: Path) -> None:
    first, second = (release._built(ROOT, tmp_path / name) for name in ("first", "second"))
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)

    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
