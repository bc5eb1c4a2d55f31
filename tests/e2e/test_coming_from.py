"""Pages for those who come from another system: every command of ours runs, on a task and a policy
that need nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkout import ROOT
from doc_steps import Reader, steps
from e2e import warm

PAGES = sorted((ROOT / "docs" / "how-to" / "coming-from").glob("*.md"))
TASK = "sqlparse-0.5.2"
STAND_INS = {
    r"dataset:\n    s\w+: .*": "dataset: {releasePairs: {names: [sqlparse]}, %s}",
    r"policy:\n    \w+: .*": "policy: {scripted: {scenarios: [gold]}}",
    r"sandbox: {pod: {}}": "sandbox: {local: {}}",
    r"reward: \[reward_file\]": "reward: [resolved]",
    r"samples: \d+": "samples: 1",
}
"""What stands for the reader's dataset, policy, samples and sandboxes."""


def with_stand_ins(job: str) -> str:
    slice_ = re.search(r"slice: .*", job)
    assert slice_ is not None
    job = job.replace(f"    {slice_[0]}\n", "")
    for there, instead in STAND_INS.items():
        job = re.sub(there, instead.replace("%s", slice_[0]), job)
    return job


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    told = steps(page)
    (job,) = (step for step in told if step.file == "job.yaml")
    played = with_stand_ins(job.text)
    stand_ins = ((job.text, played), ("sympy__sympy-15599", TASK))
    reader = Reader(tmp_path, stand_ins, programs=warm.programs(), python="swe-rollout")
    said = "".join(reader.carry_out(step) for step in told)
    assert played != job.text
    assert f"{TASK}        " in said
    for written in re.findall(r"-O ([\w.]+)", "".join(step.text for step in told)):
        assert (tmp_path / written).stat().st_size > 0, written
