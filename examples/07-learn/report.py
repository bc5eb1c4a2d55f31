"""The result of `learn.py`: a plot of the solve rate by step, a table, and a summary."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self

import matplotlib as mpl

mpl.use("svg")
from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt

WINDOW = 3


@dataclass(frozen=True)
class Step:
    """One step of the trainer."""

    step: int
    solved: float
    """Share of its episodes."""
    seconds: float
    """Since the training began."""
    kl: float
    """Of the policy from its base, in nats for each token."""


@dataclass
class Seed:
    """What happened with one seed."""

    seed: int
    pretrain_s: float = 0.0
    before: dict[str, float] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    after: dict[str, float] = field(default_factory=dict)
    train_s: float = 0.0

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `asdict` wrote."""
        stored: dict[str, Any] = json.loads(file.read_text())
        return cls(**{**stored, "steps": [Step(**step) for step in stored["steps"]]})


def report(seeds: Sequence[Seed], folder: Path) -> dict[str, object]:
    """Write `learn.svg` and `table.md`; return the summary."""
    _plot(seeds, folder / "learn.svg")
    lines = [
        "| seed | solved before | after | held-out wordings before | after | steps | minutes |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for each in seeds:
        rates = (each.before["trained"], each.after["trained"])
        rates += (each.before["held_out"], each.after["held_out"])
        cells = [f"{each.seed}", *(f"{rate:.0%}" for rate in rates)]
        cells += [f"{len(each.steps)}", f"{each.train_s / 60:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    return {
        "before": [each.before for each in seeds],
        "after": [each.after for each in seeds],
        "steps": [len(each.steps) for each in seeds],
        "train_s": [each.train_s for each in seeds],
        "learned": all(
            each.before["trained"] <= 0.3 and each.after["trained"] >= 0.8  # noqa: PLR2004
            for each in seeds
        ),
        "plot": str(folder / "learn.svg"),
    }


def _plot(seeds: Sequence[Seed], path: Path) -> None:
    plt.rcParams.update({"svg.hashsalt": "learn", "font.size": 10})
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    for color, each in enumerate(seeds):
        steps = [step.step for step in each.steps]
        solved = [step.solved for step in each.steps]
        smooth = [
            sum(solved[max(0, at - WINDOW) : at + 1]) / len(solved[max(0, at - WINDOW) : at + 1])
            for at in range(len(solved))
        ]
        axes.plot(steps, solved, ".", color=f"C{color}", alpha=0.3)
        axes.plot(steps, smooth, color=f"C{color}", label=f"seed {each.seed}")
    axes.axhline(1 / 4, color="gray", linestyle=":", linewidth=1)
    axes.set(xlabel="step (96 episodes each)", ylabel="solved by hidden tests", ylim=(0, 1.02))
    axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:.0%}")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
