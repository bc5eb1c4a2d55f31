"""The README's commands and snippets, run as they stand."""

from __future__ import annotations

from pathlib import Path

from checkout import ROOT
from doc_steps import Reader, Step, steps

README = ROOT / "README.md"
ELSEWHERE = {
    "make demo": "its job is that of the commands below",
    "make test": "runs this test",
    "make setup": "this environment is what it makes",
    ". .venv/bin/activate": "the environment is first on PATH here as well",
    "make demo-cluster": "builds a cluster; its job and commands run in tests/cluster",
}


def commands(text: str) -> list[str]:
    return [line.partition("  #")[0].strip() for line in text.splitlines()]


def test_its_commands_and_snippets_run(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    reader = Reader(tmp_path)
    shown = [step for step in steps(README) if step.language != "yaml"]
    lines = [line for step in shown if step.language == "sh" for line in commands(step.text)]
    assert set(ELSEWHERE) <= set(lines)

    run = [line for line in lines if line not in ELSEWHERE]
    printed = reader.carry_out(Step("sh", "\n".join(run), None))

    assert "sqlparse-0.5.2" in printed
    assert (tmp_path / "demo.html").stat().st_size > 10_000
    assert (tmp_path / "demo.parquet").exists()
    snippets = [step for step in shown if step.language == "python"]
    launched, raw = (reader.carry_out(snippet) for snippet in snippets)
    assert launched.count("demo/sqlparse-0.5.2/") == 4
    assert len(launched.splitlines()) == 24
    assert raw == ""
