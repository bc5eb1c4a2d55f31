"""Derive image, test command and log parser for rows of SWE-bench's first generation.

Rows of the second generation name all three. Used by `swebench`.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath

_NOT_TESTS = frozenset(
    {".json", ".png", ".csv", ".txt", ".md", ".jpg", ".jpeg", ".pkl", ".yml", ".yaml", ".toml"}
)
_FILES = re.compile(r"^diff --git a/.* b/(.*)$", re.MULTILINE)
_CASES = re.compile(r"\[case (\w{1,200})")
CONDA = "if [ -f /opt/miniconda3/bin/activate ]; then . /opt/miniconda3/bin/activate testbed; fi"


@dataclass(frozen=True, slots=True)
class Project:
    """How to run the tests of one repository."""

    log_parser: str
    command: str = "pytest -rA"
    """The test command, to which the test files are appended."""
    before: str = ""
    """A command to run first, if any."""
    modules: bool = False
    """Whether to name tests as dotted modules below `tests/`, as Django's runner requires."""
    cases: bool = False
    """Whether to name tests by `[case x]` in data files, as mypy's runner requires."""


_PROJECTS = {
    "astropy/astropy": Project("pytest_v2"),
    "django/django": Project(
        "django",
        "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1",
        before="export LANG=C.UTF-8 LC_ALL=C.UTF-8 PYTHONIOENCODING=utf8",
        modules=True,
    ),
    "matplotlib/matplotlib": Project("matplotlib"),
    "mwaskom/seaborn": Project("seaborn", "pytest --no-header -rA"),
    "psf/requests": Project(
        "pytest_options",
        # The images have an installed copy, which the patch does not change.
        before="python -m pip install --quiet --no-deps --no-build-isolation .",
    ),
    "pydicom/pydicom": Project("pytest_options"),
    "pylint-dev/pylint": Project("pytest_options"),
    "scikit-learn/scikit-learn": Project("pytest_v2"),
    "sphinx-doc/sphinx": Project("pytest_v2", "tox --current-env -epy39 -v --"),
    "sympy/sympy": Project(
        "sympy",
        "PYTHONWARNINGS='ignore::UserWarning,ignore::SyntaxWarning' bin/test -C --verbose",
    ),
}
_DEFAULT = Project("pytest")
_GYM = "xingyaoww"
"""The publisher of the images of SWE-Gym's projects, whose names have their own form."""
_GYM_PROJECTS = {
    "bokeh/bokeh": Project("pytest", "pytest -rA -n0"),
    "conan-io/conan": Project("pytest", "pytest -n0 -rA"),
    "dask/dask": Project("pytest", "pytest -n0 -rA --color=no"),
    "facebookresearch/hydra": _DEFAULT,
    "getmoto/moto": Project("pytest", "pytest -n0 -rA"),
    "hypothesisworks/hypothesis": _DEFAULT,
    "iterative/dvc": _DEFAULT,
    "modin-project/modin": Project("pytest", "pytest -n0 -rA"),
    "pandas-dev/pandas": _DEFAULT,
    "project-monai/monai": _DEFAULT,
    "pydantic/pydantic": Project(
        "pytest_v2", "pytest -rA --tb=short -vv -o console_output_style=classic --no-header"
    ),
    "python/mypy": Project("pytest", "pytest -n0 -rA -k", cases=True),
    "spyder-ide/spyder": Project("pytest", "pytest -n0 -rA"),
}


def project_of(repo: str) -> Project:
    """Return how to run the tests of `owner/name`: with pytest, except for known exceptions."""
    name = repo.lower()
    return _PROJECTS.get(name) or _GYM_PROJECTS.get(name, _DEFAULT)


def image_of(instance_id: str, repo: str = "", *, namespace: str = "swebench") -> str:
    """Return the official image's name, by the documented rule."""
    separator = "_1776_"
    if repo.lower() in _GYM_PROJECTS:
        namespace, separator = _GYM, "_s_"
    name = instance_id.replace("__", separator)
    return f"{namespace}/sweb.eval.x86_64.{name}:latest".lower()


def test_command(repo: str, test_patch: str) -> str | None:
    """Return the command that runs the patch's test files; None when it touches no file.

    If the patch has only data files, it runs the whole suite, as the official scripts do.
    """
    if not _FILES.search(test_patch):
        return None
    project = project_of(repo)
    tests = test_arguments(test_patch)
    if project.modules:
        tests = [_module(file) for file in tests]
    if project.cases:
        tests = [" or ".join(dict.fromkeys(_CASES.findall(test_patch)))]
    run = f"{project.command} {shlex.join(tests)}".rstrip()
    return "\n".join(part for part in (CONDA, project.before, run) if part)


def test_arguments(patch: str) -> list[str]:
    """List the patch's files in order, except data files and deleted ones."""
    files = _FILES.findall(patch)
    gone = set(re.findall(r"^--- a/(.*)\n\+\+\+ /dev/null$", patch, re.MULTILINE))
    return [f for f in files if PurePosixPath(f).suffix not in _NOT_TESTS and f not in gone]


def _module(file: str) -> str:
    return file.removesuffix(".py").removeprefix("tests/").replace("/", ".")


def here_document(target: str, text: str) -> str:
    """Return the command that writes `text` to the quoted path `target`."""
    # No text can be chosen that contains its own hash.
    mark = f"END_{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:24]}"
    ending = "" if text.endswith("\n") else "\n"
    return f"cat >{target} <<'{mark}'\n{text}{ending}{mark}"
