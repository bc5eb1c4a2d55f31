"""LogFormat: the form of a test log. Datasets name one for each instance, grading reads it."""

from __future__ import annotations

from enum import StrEnum

_OFFICIAL = "parse_log_"


class LogFormat(StrEnum):
    """How statuses are found in a test log: SWE-bench's parsers reduce to these."""

    PYTEST = "pytest"
    PYTEST_OPTIONS = "pytest_options"
    PYTEST_V2 = "pytest_v2"
    DJANGO = "django"
    SYMPY = "sympy"
    SEABORN = "seaborn"
    MATPLOTLIB = "matplotlib"
    SWESMITH = "swesmith"

    @property
    def official(self) -> str:
        """Its name in rows, such as `parse_log_pytest`."""
        return _OFFICIAL + self

    @classmethod
    def named(cls, name: str) -> LogFormat | None:
        """The format of an official name (`parse_log_flask`) or of its own; none if unknown."""
        own = {form.value: form for form in cls}
        if not name.startswith(_OFFICIAL):
            return own.get(name)
        project = name.removeprefix(_OFFICIAL)
        return _SAME_AS.get(project) or own.get(project)


_SAME_AS = {
    "astroid": LogFormat.PYTEST,
    "flask": LogFormat.PYTEST,
    "marshmallow": LogFormat.PYTEST,
    "pvlib": LogFormat.PYTEST,
    "pyvista": LogFormat.PYTEST,
    "sqlfluff": LogFormat.PYTEST,
    "xarray": LogFormat.PYTEST,
    "pydicom": LogFormat.PYTEST_OPTIONS,
    "requests": LogFormat.PYTEST_OPTIONS,
    "pylint": LogFormat.PYTEST_OPTIONS,
    "astropy": LogFormat.PYTEST_V2,
    "scikit": LogFormat.PYTEST_V2,
    "sphinx": LogFormat.PYTEST_V2,
}
