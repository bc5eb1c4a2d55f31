"""Log parsers by key. An instance names its parser; official names (`parse_log_…`) work too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.errors import TaskError
from swe_rollout.grading.parsers.django_log import django
from swe_rollout.grading.parsers.pytest_log import (
    matplotlib,
    pytest,
    pytest_options,
    pytest_v2,
    seaborn,
    swesmith,
)
from swe_rollout.grading.parsers.sympy_log import sympy

if TYPE_CHECKING:
    from swe_rollout.grading.parsers.base import Parser

PARSERS: dict[str, Parser] = {
    "pytest": pytest,
    "pytest_options": pytest_options,
    "pytest_v2": pytest_v2,
    "django": django,
    "sympy": sympy,
    "seaborn": seaborn,
    "matplotlib": matplotlib,
    "swesmith": swesmith,
}
"""By key."""

_PROJECTS: dict[str, str] = {
    "astroid": "pytest",
    "flask": "pytest",
    "marshmallow": "pytest",
    "pvlib": "pytest",
    "pyvista": "pytest",
    "sqlfluff": "pytest",
    "xarray": "pytest",
    "pydicom": "pytest_options",
    "requests": "pytest_options",
    "pylint": "pytest_options",
    "astropy": "pytest_v2",
    "scikit": "pytest_v2",
    "sphinx": "pytest_v2",
}


def get(name: str) -> Parser:
    """The parser of that key or official name; TaskError when there is none."""
    key = name.removeprefix("parse_log_")
    key = _PROJECTS.get(key, key) if key != name else key
    if key not in PARSERS:
        raise TaskError(
            f"there is no log parser {name!r}",
            why=f"known are {', '.join(PARSERS)}",
            fix="name one of these in the row's `log_parser`, or leave the instance out",
            retryable=False,
        )
    return PARSERS[key]
