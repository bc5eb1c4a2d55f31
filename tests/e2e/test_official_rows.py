"""Official rows without their images: the page's commands, over a small repository made here.

Real rows: docs/how-to/official-rows-without-images.md.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from checkout import ROOT
from e2e import warm
from swe_rollout.sandbox.local import bubblewrap
from unit.sandbox.local.checkout_parts import commit, git, make_environment, write

PAGE = (ROOT / "docs" / "how-to" / "official-rows-without-images.md").read_text("utf-8")
COMMANDS = re.findall(r"^swe-rollout (validate rows\.jsonl .*)$", PAGE, re.MULTILINE)
WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = WRONG.replace("-", "+")
TESTS = "from calculator import add\n\n\ndef test_zero():\n    assert add(0, 0) == 0\n"
HIDDEN = TESTS + "\n\ndef test_sum():\n    assert add(1, 2) == 3\n"
SCRIPT = """\
#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
git config --global --add safe.directory /testbed
cd /testbed
git status
git show
git -c core.fileMode=false diff {base}
source /opt/miniconda3/bin/activate
conda activate testbed
python -m pip install -e .
git checkout {base} tests/test_add.py
git apply -v - <<'EOF_114329324912'
{test_patch}
EOF_114329324912
: '>>>>> Start Test Output'
{command} tests/test_add.py
: '>>>>> End Test Output'
git checkout {base} tests/test_add.py
"""


def diff(folder: Path, name: str, text: str) -> str:
    write(folder, {name: text})
    patch = git(folder, "diff") + "\n"
    git(folder, "checkout", "--quiet", "--", name)
    return patch


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder of the test's own, as the page has it."""
    return make_place(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the page has it, for tests that only read it; `bare` has no pytest."""
    made = make_place(tmp_path_factory.mktemp("unchanged"))
    make_environment(made / "bare", runner=False)
    return made


def make_place(tmp_path: Path) -> Path:
    """Make a folder with the repository, the environment and the rows that the page names."""
    folder = tmp_path / "calculator"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "main")
    files = {"src__calculator__.py": "", "tests__test_add.py": TESTS, "setup.py": "# builds\n"}
    commit(folder, **{name.replace("__.py", ".py"): text for name, text in files.items()})
    base = commit(folder, **{"src__calculator.py": WRONG})
    test_patch = diff(folder, "tests/test_add.py", HIDDEN)
    row = {
        "instance_id": "demo__calculator-1",
        "repo": "demo/calculator",
        "base_commit": base,
        "problem_statement": "add() subtracts.",
        "patch": diff(folder, "src/calculator.py", RIGHT),
        "test_patch": test_patch,
        "FAIL_TO_PASS": json.dumps(["tests/test_add.py::test_sum"]),
        "PASS_TO_PASS": json.dumps(["tests/test_add.py::test_zero"]),
        "version": "1.0",
        "image": "swebench/sweb.eval.x86_64.demo_1776_calculator-1:latest",
        "eval_script": SCRIPT.format(base=base, test_patch=test_patch, command="pytest -rA"),
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
    }
    other = row | {"instance_id": "demo__calculator-2", "base_commit": "1" * 40}
    save(tmp_path, row, other)
    (tmp_path / "fix.diff").write_text(row["patch"])
    (tmp_path / "wrong.diff").write_text(row["patch"].replace("a + b", "a * b"))
    make_environment(tmp_path / "venv", editable=folder / "src")
    return tmp_path


def save(place: Path, *rows: dict[str, str]) -> None:
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(place: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(shlex.split(arguments), folder=place, timeout=280)


def records(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)["instances"]
    return found


needs_namespaces = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs bubblewrap: apt-get install bubblewrap"
)


@pytest.mark.slow
@needs_namespaces
def test_the_pages_commands_grade_gold_base_and_a_patch(place: Path) -> None:
    before = git(place / "calculator", "status", "--porcelain")
    for command in COMMANDS:
        done = run(place, f"{command} -o json")
        assert done.returncode == 0, done.stderr
        (record,) = records(done)
        assert (record["gold"], record["empty"]) == ("resolved", "unresolved")
        assert record["watched"] == 1
        assert record["copies"] == []
        assert any("not installed again" in finding for finding in record["findings"])
    assert record["patch"]["status"] == "resolved"
    assert git(place / "calculator", "status", "--porcelain") == before


@needs_namespaces
def test_a_wrong_patch_fails_and_the_reason_is_shown(unchanged: Path) -> None:
    command = COMMANDS[1].replace("fix.diff", "wrong.diff")
    done = run(unchanged, command)
    assert done.returncode == 1
    assert "demo__calculator-1  resolved  unresolved  1/1      1 in 2  unresolved" in done.stdout
    assert "tests/test_add.py::test_sum FAILED" in done.stderr
    assert "assert 2 == 3" in done.stderr


def page_job(place: Path, policy: dict[str, object], **sandbox: str) -> None:
    """Write `job.yaml`: the page's job with a policy and settings of its sandboxes."""
    spec = yaml.safe_load(PAGE.partition("```yaml\n")[2].partition("```")[0])
    spec["sandbox"]["local"] |= sandbox
    job = {
        "apiVersion": "swe-rollout.dev/v1alpha1",
        "kind": "RolloutJob",
        "metadata": {"name": "official"},
        "spec": spec | {"policy": {"scripted": policy}, "store": {"uri": f"file://{place}/runs"}},
    }
    (place / "job.yaml").write_text(yaml.safe_dump(job))


def test_the_pages_job_says_the_same_without_isolation(place: Path) -> None:
    page_job(place, {}, isolation="none")
    done = run(place, "validate job.yaml -o json")
    assert done.returncode == 0, done.stderr
    (record,) = records(done)
    assert (record["gold"], record["empty"]) == ("resolved", "unresolved")


@needs_namespaces
def test_a_job_plays_it_and_keeps_the_whole_log(place: Path) -> None:
    page_job(place, {"scenarios": ["gold"]})
    done = run(place, "run job.yaml")
    assert done.returncode == 0, done.stderr
    record = run(place, "logs runs/official/demo__calculator-1/0 --tests")
    assert record.returncode == 0, record.stderr
    assert "PASSED tests/test_add.py::test_sum" in record.stdout
    assert "test session starts" in record.stdout
    status = run(place, "status runs/official -o json")
    assert status.returncode == 0
    assert "stray" not in status.stderr
    unknown = run(place, "logs runs/official --tests")
    assert (unknown.returncode, "is no episode" in unknown.stderr) == (2, True)


@needs_namespaces
def test_a_squashed_history_and_toxs_command_will_do(place: Path) -> None:
    row = json.loads((place / "rows.jsonl").read_text().splitlines()[0])
    script = row["eval_script"].replace("pytest -rA", "tox --current-env -epy39 -v --")
    save(place, row | {"eval_script": script, "log_parser": "parse_log_sphinx"})
    git(place / "calculator", "checkout", "--quiet", "--orphan", "one")
    git(place / "calculator", "commit", "--quiet", "-m", "one")
    git(place / "calculator", "branch", "--delete", "--force", "main")
    git(place / "calculator", "reflog", "expire", "--expire=now", "--all")
    git(place / "calculator", "gc", "--quiet", "--prune=now")
    done = run(place, f"{COMMANDS[0]} -o json")
    assert done.returncode == 0, done.stderr
    assert any("has no commit" in each for each in records(done)[0]["findings"])


@needs_namespaces
def test_a_patch_of_the_build_says_honestly_that_it_could_not_be_installed(place: Path) -> None:
    row = json.loads((place / "rows.jsonl").read_text().splitlines()[0])
    gold = row["patch"] + diff(place / "calculator", "setup.py", "# builds more\n")
    save(place, row | {"patch": gold})
    done = run(place, f"{COMMANDS[0]} -o json")
    (record,) = records(done)
    assert any("could not be installed again" in each for each in record["findings"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--workdir calculator", "--workdir and --python go together"),
        ("--workdir none --python venv/bin/python", "there is no folder"),
        ("--workdir calculator --python none", "no Python that runs"),
        ("--workdir venv --python venv/bin/python", "stands for one task"),
        ("--workdir calculator --python bare", "it has no pytest"),
        ("--workdir calculator --python venv --sandbox pod", "sandboxes on this machine"),
        ("--workdir calculator --python venv --patch none.diff", "none.diff can't be read"),
    ],
)
def test_what_is_missing_is_named_with_its_cure(
    unchanged: Path, arguments: str, message: str
) -> None:
    done = run(unchanged, f"validate rows.jsonl {arguments}")
    assert done.returncode in (2, 3), done.stderr
    assert message in done.stderr
    assert "fix " in done.stderr
