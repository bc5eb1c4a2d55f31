"""The README's commands and snippets, run as they stand, on one of the six tasks.

`make demo` and `make test-wheel` play all of them.
"""

from __future__ import annotations

from pathlib import Path

from checkout import ROOT
from doc_steps import Reader, Step, steps

JOB = "examples/01-release-pairs/job.yaml"
ELSEWHERE = ("make ", ". .venv/bin/activate")
"""Commands that make this environment, or are run by a tier of their own."""


def test_its_commands_and_snippets_run(tmp_path: Path) -> None:
    job = (ROOT / JOB).read_text()
    (tmp_path / JOB).parent.mkdir(parents=True)
    (tmp_path / JOB).write_text(
        job.replace("releasePairs: {}", "releasePairs: {names: [sqlparse]}")
    )
    reader = Reader(tmp_path)
    shown = [step for step in steps(ROOT / "README.md") if step.language != "yaml"]
    lines = [line for step in shown if step.language == "sh" for line in step.text.splitlines()]
    run = "\n".join(line for line in lines if not line.startswith(ELSEWHERE))

    assert "sqlparse-0.5.2" in reader.carry_out(Step("sh", run, None))
    assert (tmp_path / "demo.html").stat().st_size > 10_000
    assert (tmp_path / "demo.parquet").exists()
    printed = "".join(reader.carry_out(step) for step in shown if step.language == "python")
    assert printed.count("demo/sqlparse-0.5.2/") == 4
