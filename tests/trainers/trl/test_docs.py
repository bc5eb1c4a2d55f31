"""The snippets of docs/how-to/trl.md and of the tutorial run as they stand, but for one step."""

from __future__ import annotations

import re
import warnings
from functools import partial
from pathlib import Path

import pytest
from transformers import AttentionInterface

with warnings.catch_warnings():
    # TRL's own, while it is imported.
    warnings.simplefilter("ignore")
    from trl.experimental.async_grpo import async_grpo_trainer
    from trl.experimental.async_grpo.packing import TREE_ATTENTION

from swe_rollout.integrations import trl as ours
from trainers.tiny_model import TorchModel, save_model
from trainers.trl.parts import QUIET, Checkpoints, tree_attention
from unit.integrations.rollouts import SUBMIT, Policy, write_job

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.filterwarnings("default"),  # TRL's and transformers' own
]
DOCS = Path(__file__).parents[3] / "docs"
PAGES = [DOCS / "how-to" / "trl.md", DOCS / "tutorial" / "6-trainer.md"]
SNIPPETS = [
    snippet
    for page in PAGES
    for snippet in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    if "trl" in snippet
]
OPTIONS = "max_steps=1, per_device_train_batch_size=8, "
OPTIONS += ", ".join(f"{name}={value!r}" for name, value in QUIET.items())


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["GRPOTrainer", "AsyncGRPOTrainer", "tutorial"])
def test_a_snippet_trains_a_step(
    snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model(tmp_path / "model", seed=7)
    write_job(tmp_path)
    engine = Policy({0: [SUBMIT]}, {"7": TorchModel(model).decoded})
    sent: list[Checkpoints] = []

    def weights(urls: list[str], *, config: str) -> Checkpoints:
        assert urls == ["http://127.0.0.1:30000"]
        sent.append(Checkpoints(Path(config), tmp_path / "sent"))
        return sent[-1]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ours, "Rollouts", partial(ours.Rollouts, engine=engine))
    monkeypatch.setattr(ours, "RolloutWorker", partial(ours.RolloutWorker, engine=engine))
    monkeypatch.setattr(ours, "SglangWeights", weights)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)
    register = async_grpo_trainer.register_tree_attention

    def registered() -> None:
        register()
        AttentionInterface.register(TREE_ATTENTION, tree_attention)

    monkeypatch.setattr(async_grpo_trainer, "register_tree_attention", registered)
    assert "max_steps=100" in snippet

    exec(snippet.replace("max_steps=100", OPTIONS), {})  # noqa: S102 - our own page

    assert sent[0].version >= 1
    assert sent[0].orders[:3] == ["pause", "send_weights", "resume"]
