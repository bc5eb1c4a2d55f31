"""Map the names of log parsers in rows to the parsers here that read the same logs.

Rows are untrusted, so they can only choose among these; a job names its own parser in
`grading.logParser`. Used by the row formats and `rows`.
"""

from __future__ import annotations

from swe_rollout.types.instance import BUILTIN_LOG_PARSERS

_OFFICIAL = "parse_log_"
_SAME_AS = {
    name: parser
    for parser, names in {
        "pytest": "astroid dvc flask marshmallow pvlib pydantic pyvista sqlfluff xarray",
        "pytest_options": "pydicom requests pylint",
        "pytest_v2": "astropy scikit sphinx",
        "gradle": "gradle_custom",
        "automake": "jq",
        "micropython": "micropython_test",
        "rspec_lines": "rspec_transformed_json",
        "jest_files": "carbon emotion grommet prettier react_pdf scratch_gui",
        "fusion_next": "next",
        "mocha_json": "prismjs",
    }.items()
    for name in names.split()
}
_BY_INSTANCE = {
    ("immutable_js", "immutable-js__immutable-js-2005"): "jest_json",
    ("immutable_js", "immutable-js__immutable-js-2006"): "jest",
    **{("jekyll", f"jekyll__jekyll-{each}"): "minitest" for each in (8047, 8167, 9141)},
    **{("jekyll", f"jekyll__jekyll-{each}"): "cucumber" for each in (8761, 8771)},
}
"""Official parsers that differ from instance to instance."""
_LIGHTHOUSE_MOCHA = ("9.5", "10.0", "10.2")


def parser_of(name: str, *, instance_id: str = "", version: str = "") -> str | None:
    """Return the parser for an official name (`parse_log_flask`) or its own; None if unknown.

    Some official parsers depend on the instance or its version.
    """
    if name == "parse_combined_test_reports":
        return "junit_xml"
    if not name.startswith(_OFFICIAL):
        return name if name in BUILTIN_LOG_PARSERS else None
    project = name.removeprefix(_OFFICIAL)
    if project == "lighthouse":
        return _lighthouse(version)
    if project == "next" and version == "1.27":
        return None
    by_instance = _BY_INSTANCE.get((project, instance_id))
    return (
        by_instance
        or _SAME_AS.get(project)
        or (project if project in BUILTIN_LOG_PARSERS else None)
    )


def _lighthouse(version: str) -> str | None:
    if version in _LIGHTHOUSE_MOCHA:
        return "lighthouse_mocha"
    major = version.partition(".")[0]
    if not major.isdecimal():
        return None
    return "jest_files" if int(major) >= 3 else "mocha_json"  # noqa: PLR2004 - it had Mocha before


def official_name(parser: str) -> str | None:
    """Return a parser's name in rows, such as `parse_log_pytest`; None if rows can't name it."""
    return _OFFICIAL + parser if parser in BUILTIN_LOG_PARSERS else None
