"""What the page about training from the store shows runs as it shows it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.command import ROOT, Job
from swe_rollout import TrainingSample, open_store
from swe_rollout.store.store import Store
from unit.training.group_parts import LOST, begin, sample

PAGE = (ROOT / "docs" / "how-to" / "train-from-the-store.md").read_text("utf-8")
STORED, RESTARTED, LISTED, LIVE = re.findall(
    r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
)


@dataclass
class Step:
    weight_version: str = "scripted-2"


@dataclass
class Trainer:
    """The functions that a reader of the page has."""

    rewards: list[list[float | None]] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    starts: int = 1

    def train(self, samples: Sequence[TrainingSample], advantages: Sequence[float | None]) -> Step:
        assert len(samples) == len(advantages) > 0
        self.rewards.append([each.reward for each in samples])
        return Step()

    def save_checkpoint(self, step: Step, *, trained: list[str]) -> None:
        assert step
        self.trained.extend(trained)

    def names(self) -> dict[str, object]:
        return {
            "train": self.train,
            "save_checkpoint": self.save_checkpoint,
            "load_checkpoint": lambda: self,
        }


def test_a_trainer_reads_the_store_and_goes_on_after_its_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.open(f"file://{tmp_path}/runs")
    asyncio.run(begin(store, "a", "b", "c"))
    for name in "abc":
        asyncio.run(store.commit(sample(name, 0, reward=1.0)))
        failure = LOST if name == "b" else None
        asyncio.run(store.commit(sample(name, 1, reward=0.0, failure=failure)))
    dead = open_store("runs").job("demo").groups("t1")
    next(dead)
    trainer = Trainer()
    names = trainer.names()

    exec(LISTED, names := {**names, "open_store": open_store})  # noqa: S102 - the page's own
    assert re.fullmatch(r"a \S+ 0 \d{4}-\S+\n", capsys.readouterr().out)
    exec(STORED, names)  # noqa: S102
    assert trainer.trained == ["demo/b", "demo/c"]
    assert trainer.rewards == [[1.0], [1.0, 0.0]]
    exec(RESTARTED, names)  # noqa: S102
    again = names["groups"]
    assert [group.group_id for group in again] == ["demo/a"]  # type: ignore[attr-defined]


def test_a_trainer_takes_groups_of_the_same_process(
    job_file: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = job_file(scenarios=["gold", "empty"])
    monkeypatch.chdir(file.path.parent)
    trainer = Trainer()
    exec(LIVE, trainer.names())  # noqa: S102
    assert trainer.rewards == [[1.0, 0.0]]
    assert [each.state for each in open_store(file.store).job("job").claims("t1")] == ["trained"]
