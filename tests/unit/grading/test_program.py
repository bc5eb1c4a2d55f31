"""Official scripts are rewritten where that is safe, and their test patches never."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratios import growth
from swe_rollout.grading.program import Place, is_build_file, of_install, program, rewrite
from swe_rollout.types.instance import Evaluation

BASE = "7ee9ceb71e868944a46e1ff00b506772a53a4f1d"
OWN = "c" * 40
PATCH = f"""\
diff --git a/tests/test_x.py b/tests/test_x.py
--- a/tests/test_x.py
+++ b/tests/test_x.py
@@ -1,2 +1,3 @@
 python -m pip install -e .
+# {BASE} in /testbed
"""
SETUP = f"""\
source /opt/miniconda3/bin/activate
conda activate testbed
cd /testbed
git -c core.fileMode=false diff {BASE}
python -m pip install -e .
git checkout {BASE} tests/test_x.py
git apply -v - <<'EOF_1'
{PATCH}
EOF_1
"""
AT_HOME = Place("/testbed", "/testbed")
SKIPPED = "the package is not installed again: the patch changes no file that a build reads"


def test_an_editable_install_is_not_repeated_for_pure_source() -> None:
    made = rewrite(SETUP, patch=PATCH, place=AT_HOME, changed={"src/a.py"}, path="/run/x")
    assert made.text == SETUP.replace("python -m pip install -e .\ngit", ":\ngit")
    assert made.findings == (SKIPPED,)
    assert not made.installs


@pytest.mark.parametrize("file", ["setup.cfg", "pkg/fast.pyx", "pyproject.toml", "src/x.c"])
def test_a_change_of_the_build_is_installed_and_how_that_ended_is_written_down(file: str) -> None:
    made = rewrite(SETUP, patch=PATCH, place=AT_HOME, changed={"a.py", file}, path="/run/x")
    line = "python -m pip install -e ."
    assert f"{{ {line} || {line} --no-index --no-deps --no-build-isolation; }}" in made.text
    assert "; echo $? >/run/x\n" in made.text
    assert (made.installs, made.findings) == (True, ())
    assert PATCH in made.text


@pytest.mark.parametrize(
    "line",
    [
        "python -m pip install -e .",
        "python -m pip install -e .[test]",
        "python -m pip install -e '.[dev]'",
        "python -m pip install -v --no-use-pep517 --no-build-isolation -e .",
        "pip install --editable .",
    ],
)
def test_an_editable_install_of_the_package_is_left_out(line: str) -> None:
    made = rewrite(f"cd /\n{line}\n", patch="", place=AT_HOME, changed={"a.py"}, path="/run/x")
    assert (made.text, made.installs) == ("cd /\n:\n", False)


@pytest.mark.parametrize(
    "line",
    [
        "python -m pip install .",  # a copy, which the patch would not reach
        "python -m pip install -e ../other",
        "python -m pip install flask",
    ],
)
def test_another_install_is_not(line: str) -> None:
    made = rewrite(f"cd /\n{line}\n", patch="", place=AT_HOME, changed={"a.py"}, path="/run/x")
    assert line in made.text
    assert made.installs


def test_another_commit_and_folder_stand_for_the_scripts_own() -> None:
    place = Place("/testbed", "/cache/own", BASE, OWN)
    made = rewrite(SETUP, patch=PATCH, place=place, changed=set(), path="/run/x")
    before, _, after = made.text.partition(PATCH)
    assert after == "\nEOF_1\n"
    assert "cd /cache/own\n" in before
    assert f"git checkout {OWN} tests/test_x.py" in before
    assert BASE not in before
    assert "/testbed" not in before
    assert any(BASE[:12] in finding for finding in made.findings)
    assert place.adapt("cd /testbed/sub /testbeds x/testbed") == (
        "cd /cache/own/sub /testbeds x/testbed"
    )


@given(st.text(), st.text(min_size=1).filter(str.strip), st.text())
def test_a_test_patch_is_never_changed(before: str, patch: str, after: str) -> None:
    setup = f"{before}\n{patch}\n{after}"
    if setup.partition(patch)[0] != f"{before}\n":
        return  # the patch's text also stands before it
    place = Place("/testbed", "/own", BASE, OWN)
    made = rewrite(setup, patch=patch, place=place, changed={"setup.py"}, path="/run/x")
    assert f"\n{patch}\n" in made.text


def test_the_marks_of_a_script_are_found_behind_any_number_of_lines() -> None:
    marks = "  echo '>>>>> Start Test Output' \r\nmake test\n: '>>>>> End Test Output'"

    def find(lines: int) -> None:
        script = "\n" * lines + "x\n" + marks
        assert program(Evaluation(script=script)).tests.strip() == "make test"

    assert growth(find, 4_000, 16_000) < 3


def test_build_files_are_known_by_name() -> None:
    assert is_build_file("a/setup.py")
    assert not is_build_file("a/setups.py")
    assert not is_build_file("docs/index.rst")


def test_a_failed_install_is_a_finding() -> None:
    assert of_install(b"0\n") == ()
    assert "could not be installed" in of_install(b"1\n")[0]
    assert of_install(b"")
