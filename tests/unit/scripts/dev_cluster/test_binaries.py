"""What is built, and what people are told before it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout_dev.dev_cluster import binaries
from rollout_dev.dev_cluster.errors import Progress


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a build make an empty folder, and note its name."""
    names: list[str] = []

    def ensure(group: binaries.Group, _: Progress) -> Path:
        names.append(group.name)
        group.folder.mkdir(parents=True)
        return group.folder

    monkeypatch.setattr(binaries, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(binaries, "ensure", ensure)
    return names


def test_a_first_build_says_beforehand_how_long_it_takes(
    built: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    binaries.ensure_cluster(Progress())

    first, *lines = capsys.readouterr().err.splitlines()
    assert "up to 30" in first
    assert built == [group.name for group in binaries.CLUSTER]
    assert [line.split()[1:] for line in lines] == [
        [f"{name}:", str(number), "of", "4"] for number, name in enumerate(built, 1)
    ]


def test_a_later_start_builds_and_says_nothing(
    built: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    binaries.ensure_cluster(Progress())
    built.clear()
    capsys.readouterr()

    binaries.ensure_cluster(Progress())

    assert built == []
    assert capsys.readouterr().err == ""
