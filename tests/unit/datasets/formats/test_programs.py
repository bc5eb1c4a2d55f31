"""The commands of formats that bring scripts and parsers, run by a real shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swe_rollout.datasets.formats.swe_smith import reversed_diff
from swe_rollout.grading.parsers import load_parser
from swe_rollout.grading.program import program
from swe_rollout.types.instance import Instance
from unit.datasets.test_formats import LIVE, PRO, R2E, one

QUOTES = "'\"$(exit 9)`exit 9`\\ EOF"
RUN_SCRIPT = f"""echo "files: $1"
cat <<'EOF'
{QUOTES}
a ok
EOF
echo warned >&2
"""
PARSER = """import json, sys
stdout, stderr, output = (open(p, m) for p, m in zip(sys.argv[1:], "rrw"))
lines = stdout.read().splitlines()
tests = [{"name": f"it's {l.split()[0]}", "status": "PASSED"} for l in lines if l.endswith(" ok")]
tests.append({"name": lines[0], "status": "FAILED"})
tests.append({"name": stderr.read().strip(), "status": "SKIPPED"})
json.dump({"tests": tests}, output, indent=2)
"""
ENVIRONMENT = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def shell(script: str, folder: Path) -> str:
    done = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, check=False)
    return done.stdout.decode()


def graded(task: Instance, folder: Path) -> dict[str, str]:
    results = load_parser(task.log_parser).read(shell(program(task.evaluation).text, folder))
    return {result.test: result.status.value for result in results}


async def test_a_script_and_its_parser_run_in_the_sandbox(tmp_path: Path) -> None:
    task = await one(tmp_path, PRO | {"run_script": RUN_SCRIPT, "parser_script": PARSER})
    assert graded(task, tmp_path) == {
        "it's a": "PASSED",
        "files: tests/a.js,tests/b c.js": "FAILED",
        "warned": "SKIPPED",
    }


@pytest.mark.parametrize("broken", ["raise SystemExit(3)\n", "open(3\n"])
async def test_a_parser_that_breaks_reports_no_test(tmp_path: Path, broken: str) -> None:
    task = await one(tmp_path, PRO | {"run_script": RUN_SCRIPT, "parser_script": broken})
    assert graded(task, tmp_path) == {}


async def test_a_parser_in_a_row_reads_what_the_commands_print(tmp_path: Path) -> None:
    code = (
        "import re\n\ndef parser(log: str) -> dict[str, str]:\n"
        "    words = {'ok': 'pass', 'bad': 'fail', 'no': 'skip'}\n"
        "    return {n: words[w] for n, w in re.findall(r'^(\\w+): (ok|bad|no)$', log, re.M)}\n"
    )
    commands = {
        "rebuild_cmds": ["echo one: bad"],
        "test_cmds": ["echo a: ok >report", "echo b: bad >>report", "false"],
        "print_cmds": ["cat report", "echo c: no"],
        "log_parser": code,
    }
    task = await one(tmp_path, LIVE | commands)
    assert graded(task, tmp_path) == {"a": "PASSED", "b": "FAILED", "c": "SKIPPED"}


async def test_without_commands_that_print_the_tests_output_is_the_log(tmp_path: Path) -> None:
    commands = {"rebuild_cmds": [], "test_cmds": ["echo PASSED t.py::a", "echo FAILED t.py::b >&2"]}
    task = await one(tmp_path, LIVE | commands)
    assert graded(task, tmp_path) == {"t.py::a": "PASSED", "t.py::b": "FAILED"}


async def test_tests_of_r2e_gym_are_the_images_own(tmp_path: Path) -> None:
    task = await one(tmp_path, R2E)
    [command] = task.evaluation.commands
    # A policy's folder of that name, whose tests would be the ones that run.
    (tmp_path / "r2e_tests").mkdir()
    (tmp_path / "r2e_tests" / "mine").touch()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "test_1.py").touch()
    (tmp_path / "run_tests.sh").write_text("ls r2e_tests\n")
    local = command.replace("/r2e_tests ", f"{tmp_path}/hidden ")
    assert shell(local, tmp_path) == "test_1.py\n"


def git(folder: Path, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *arguments],
        cwd=folder, env=ENVIRONMENT, input=stdin.encode(), check=True, capture_output=True,
    )  # fmt: skip
    return done.stdout.decode()


def undone(folder: Path, before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """Apply the reversed diff of two trees to the second one; return its files."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    write(folder, before)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=x")
    for name in before:
        (folder / name).unlink()
    write(folder, after)
    git(folder, "add", "--all")
    diff = git(folder, "diff", "--cached", "--find-renames=40%", "HEAD")
    turned = reversed_diff(diff)
    assert turned is not None
    if turned:
        git(folder, "apply", "--index", "--whitespace=nowarn", "-", stdin=turned)
    return {p.name: p.read_bytes().decode() for p in folder.iterdir() if p.is_file()}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())


MANY = "".join(f"line {n}\n" for n in range(30))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": "1\n2\n3\n"}, {"a": "1\nx\ny\n3\n"}),
        ({"a": "1\n"}, {"a": "1\n", "new": "x\n"}),
        ({"a": "1\n", "old": "x\ny\n"}, {"a": "1\n"}),
        ({"a": MANY}, {"b": MANY.replace("line 7\n", "seven\n")}),
        ({"a": MANY}, {"b": MANY}),
        ({"a": "no newline"}, {"a": "no newline here"}),
        ({"a": "x\n"}, {"a": "x"}),
        ({"a": "-- x\n++ y\n"}, {"a": "++ y\n-- z\n"}),
        ({"a": MANY}, {"a": MANY.replace("line 2\n", "").replace("line 25\n", "x\x0cy\u2028z\n")}),
        ({"a": "1\r\n2\r\n"}, {"a": "1\r\n3\r\n"}),
        ({"a": "1\n"}, {"a": "1\n", "empty": ""}),
    ],
    ids=str,
)
def test_every_kind_of_change_is_undone(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    assert undone(tmp_path / "repo", before, after) == before


TEXT = st.lists(st.sampled_from(["a", "b", "- c", "+ d", "@@ -1 +1 @@", "", "\\ x"])).map("\n".join)


@settings(max_examples=15, deadline=None)
@given(before=TEXT, after=TEXT)
def test_any_change_of_a_text_is_undone(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    folder = tmp_path_factory.mktemp("diff") / "repo"
    assert undone(folder, {"a": before}, {"a": after}) == {"a": before}


@pytest.mark.parametrize(
    "diff", ["GIT binary patch\nliteral 3\n", "Binary files a/x and b/x differ\n", "copy from a\n"]
)
def test_what_can_not_be_turned_around_is_none(diff: str) -> None:
    assert reversed_diff(diff) is None
