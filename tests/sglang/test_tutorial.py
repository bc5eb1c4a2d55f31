"""Step 2 of the tutorial: the tiny model in the process, then behind a server of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from doc_steps import Reader
from e2e.records import check, committed, read
from rollout_dev.sglang_cpu.environment import TORCH, link_torch
from sglang.served import MODEL, ROOT, require_installed

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

PAGE = ROOT / "docs" / "tutorial" / "2-model.md"


def test_step_2_plays_with_a_model_in_process_and_behind_sglang(tmp_path: Path) -> None:
    require_installed()
    if not TORCH.exists():
        link_torch()
    assert MODEL == ROOT / ".sglang" / "model"
    # The tests beside this one may use the checkout's server, which the page stops.
    own = ("scripts/sglang-cpu ", f"scripts/sglang-cpu --state {tmp_path / 'server'} ")
    (tmp_path / "hour").mkdir()

    Reader(tmp_path / "hour", replacements=(own,), timeout_s=900).follow(PAGE)

    for job in ("model", "served"):
        records = [read(path) for path in committed(tmp_path / "hour" / "runs" / job)]
        assert len(records) == 2
        for record in records:
            check(record)
            assert record["reward"] is not None
            assert any(logprob is not None and logprob < 0 for logprob in record["logprobs"])
    assert (tmp_path / "hour" / "sampled.html").exists()
