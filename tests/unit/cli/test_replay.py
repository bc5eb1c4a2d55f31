"""`replay`: exit 0 when everything is as recorded, 1 otherwise; every episode is told (J6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.cli.cli_parts import Cli
from unit.cli.store_parts import damage, stored
from unit.worker.work_parts import OneSandbox, TableSandbox, episode

SAME = episode(("ls", "x.py"))
OTHER = episode(("ls", "\x1b[31mgone\x1b]0;t\x07"), sample=1)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> OneSandbox:
    """The provider of every sandbox of a test."""
    found = OneSandbox(TableSandbox({"ls": "x.py\n"}))
    monkeypatch.setattr("swe_rollout.worker.sandboxes.open_sandboxes", lambda *_: found)
    return found


def test_an_episode_that_is_the_same_exits_0(
    provider: OneSandbox, tmp_path: Path, cli: Cli
) -> None:
    address = stored(tmp_path, [SAME, OTHER])
    assert "1 of 1 episodes are as recorded" in cli("replay", f"{address}/a/0").err
    assert len(provider.requests) == 1


@pytest.mark.usefixtures("provider")
def test_a_difference_exits_1_and_is_shown_without_its_control_characters(
    tmp_path: Path, cli: Cli
) -> None:
    told = cli("replay", stored(tmp_path, [SAME, OTHER]), "-o", "json", code=1)
    same, other = told.json["episodes"]
    assert (same["episode"], same["same"]) == ("demo/a/0", True)
    assert other["difference"]["what"] == "observation"
    assert "demo/a/1: turn 0, call 0: the observation differs" in told.err
    assert "+x.py" in told.err
    assert not set("\x1b\x07") & set(told.err)


@pytest.mark.usefixtures("provider")
def test_what_cant_be_replayed_exits_1_and_blocks_nothing(tmp_path: Path, cli: Cli) -> None:
    lost = episode(("lose", ""), sample=1)
    damaged = episode(("ls", "x.py"), sample=2)
    address = stored(tmp_path, [SAME, lost, damaged])
    damage(address, 2)
    told = cli("replay", address, code=1)
    assert "not replayed: the sandbox is lost" in told.out
    assert "1 of 2 episodes are as recorded" in told.err
    assert "damaged" in told.err


@pytest.mark.usefixtures("provider")
def test_another_dataset_can_be_named(tmp_path: Path, cli: Cli) -> None:
    address = stored(tmp_path, [SAME])
    moved = (tmp_path / "rows.jsonl").rename(tmp_path / "moved.jsonl")
    cli("replay", address, code=2)
    cli("replay", address, "--dataset", str(moved))
