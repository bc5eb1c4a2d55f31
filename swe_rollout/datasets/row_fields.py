"""The fields of rows, checked: what each may hold, and one line for what is wrong.

Rows are untrusted; nothing in them is evaluated. Used by the row formats.
"""

from __future__ import annotations

import ast
import difflib
import json
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from swe_rollout.datasets.official_parsers import PARSERS, parser_of
from swe_rollout.datasets.row_files import MAX_ROW_BYTES, Row
from swe_rollout.datasets.source import is_instance_id
from swe_rollout.errors import Problem
from swe_rollout.text.escaping import visible

MAX_STATEMENT_BYTES = 1 << 20
MAX_TESTS = 100_000
_MAX_REPO = 200
_SHOWN = 80
_MOST_PARTS = 4
"""Of the path to a wrong value, such as `install_config.test_cmd`."""
_DEEPEST = 50
"""Levels of lists and objects that are kept of a column that is not read."""
_ITEM = re.compile(
    r"""\s*+('(?:[^'\\\n]|\\.)*+'|"(?:[^"\\\n]|\\.)*+")\s*+(?:,|(?=[\])]\Z))""", re.DOTALL
)
"""One text of a Python list, and the comma after it."""


def clean(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"contains a NUL byte at character {text.index(chr(0))}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"contains half a surrogate pair at character {error.start}") from None
    return text


def _instance_id(text: str) -> str:
    if not is_instance_id(text):
        raise ValueError(
            "expected 1 to 200 letters, digits and `._+-`, no leading dot and no `..`, because it "
            f"names a folder; found {shown(text)}"
        )
    return text


def _repo(text: str) -> str:
    if not text.strip() or len(text) > _MAX_REPO:
        raise ValueError(f"expected 1 to {_MAX_REPO} characters; found {shown(text)}")
    return text


def _commit(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{7,64}", text):
        raise ValueError(f"expected a commit id in hexadecimal; found {shown(text)}")
    return text


def _diff(text: str) -> str:
    if text.strip() and not re.search(r"^(diff --git |--- )", text, re.MULTILINE):
        raise ValueError(f"expected a diff; found {shown(text)}")
    return text


def _statement(text: str) -> str:
    if len(text.encode()) > MAX_STATEMENT_BYTES:
        raise ValueError(f"has {len(text.encode())} bytes; at most {MAX_STATEMENT_BYTES} are taken")
    if not text.strip():
        raise ValueError("expected a text; found nothing")
    return text


def _test_ids(value: object) -> object:
    expected = "expected a list of test ids or its JSON string"
    ids = _literal(value) if isinstance(value, str) else value
    if not isinstance(ids, list | tuple):
        raise ValueError(f"{expected}; found {shown(value)}")  # noqa: TRY004 - pydantic's protocol
    if len(ids) > MAX_TESTS:
        raise ValueError(f"has {len(ids)} test ids; at most {MAX_TESTS} are taken")
    for test_id in ids:
        if not isinstance(test_id, str) or not test_id.strip():
            raise ValueError(f"{expected}; found {shown(test_id)} in the list")
        clean(test_id)
    return tuple(dict.fromkeys(ids))


def json_value(value: object) -> object:
    """Return what a column holds as JSON text, as some files have objects; else the value."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _literal(text: str) -> object:
    """The value of JSON or, as some datasets have it, a Python list of texts; never evaluated."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _python_list(text.strip())
    except (ValueError, SyntaxError, MemoryError):
        return None


def _python_list(text: str) -> list[str] | None:
    """The texts of a list or tuple as Python writes it, the first too many included; else none."""
    if text[:1] + text[-1:] not in ("[]", "()"):
        return None
    found: list[str] = []
    position = 1
    while len(found) <= MAX_TESTS and (item := _ITEM.match(text, position)):
        found.append(_python_text(item[1]))
        position = item.end()
    is_whole = position >= len(text) - 1 or not text[position:-1].strip()
    return found if is_whole or len(found) > MAX_TESTS else None


def _python_text(quoted: str) -> str:
    if "\\" not in quoted:
        return quoted[1:-1]
    with warnings.catch_warnings():
        # An odd escape in untrusted text is not ours to warn about.
        warnings.simplefilter("ignore")
        return str(ast.literal_eval(quoted))


def _commands(value: object) -> object:
    commands = [value] if isinstance(value, str) else value
    if not isinstance(commands, list) or not commands:
        raise ValueError(f"expected a command or a list of them; found {shown(value)}")
    for command in commands:
        if not isinstance(command, str) or not command.strip():
            raise ValueError(f"expected a command or a list of them; found {shown(command)}")
        clean(command)
    return tuple(commands)


def log_parser(name: str, *, instance_id: str, version: str = "") -> str | Fault:
    """Return the parser that a row names, or what is wrong with the name."""
    found = parser_of(name, instance_id=instance_id, version=version)
    if found is not None:
        return found
    near = difflib.get_close_matches(name[:_MAX_REPO].removeprefix("parse_log_"), PARSERS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return Fault(
        "log_parser",
        f"there is no parser {shown(name)}; {hint}docs/how-to/datasets.md lists them, and "
        "says how a job brings its own",
    )


def _workdir(text: str) -> str:
    if not text.startswith("/") or ".." in text.split("/"):
        raise ValueError(f"expected an absolute path; found {shown(text)}")
    return text


def _image(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}", text):
        raise ValueError(f"expected the name of an image; found {shown(text)}")
    return text


Text = Annotated[str, AfterValidator(clean)]
TestIds = Annotated[tuple[str, ...], BeforeValidator(_test_ids)]
Commands = Annotated[tuple[str, ...], BeforeValidator(_commands)]
Image = Annotated[Text, AfterValidator(_image)]
Diff = Annotated[Text, AfterValidator(_diff)]
InstanceId = Annotated[Text, AfterValidator(_instance_id)]
Repo = Annotated[Text, AfterValidator(_repo)]
Commit = Annotated[Text, AfterValidator(_commit)]
Statement = Annotated[Text, AfterValidator(_statement)]
Workdir = Annotated[Text, AfterValidator(_workdir)]
Version = Annotated[str, BeforeValidator(lambda value: str(value)[:_MAX_REPO])]


Seconds = Annotated[float, Field(gt=0, le=86_400, strict=False)]
"""The time that a row's tests may take, at most a day."""


class RowModel(BaseModel):
    """What the rows of a format hold; other columns are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class TaskRow(RowModel):
    """A row with the columns of SWE-bench that most later formats have too."""

    instance_id: InstanceId
    repo: Repo
    base_commit: Commit
    problem_statement: Statement
    test_patch: Diff
    patch: Diff = ""


RowT = TypeVar("RowT", bound=RowModel)
Columns: TypeAlias = dict[str, object]
"""A row's columns that have a value."""


def checked(row: Row, model: type[RowT], columns: Columns) -> RowT | Problem:
    """Return the row's checked fields, or one problem that names every wrong one."""
    try:
        return model.model_validate(columns)
    except ValidationError as error:
        details = error.errors(include_url=False)
        return problem_of(row, [_meant(_fault(each), columns) for each in details])


def _meant(fault: Fault, columns: Columns) -> Fault:
    """Return the fault of a missing column, with the one that may be it by another name."""
    if fault.message != "missing":
        return fault
    by_lower = {name.lower(): name for name in columns}
    close = difflib.get_close_matches(fault.field.lower(), list(by_lower), n=1, cutoff=0.75)
    hint = f"; is it {visible(by_lower[close[0]])}?" if close else ""
    return Fault(fault.field, f"missing{hint}")


def columns_of(row: Row) -> Columns | Problem:
    """Return the row's columns; a problem when it is no object, or a huge one.

    A column without a value is an absent column: Parquet has no other way to leave one out.
    """
    if not isinstance(row.content, dict):
        hint = "; a file of one list is named .json" if isinstance(row.content, list) else ""
        return Problem(row.place, "", f"expected an object; found {shown(row.content)}{hint}")
    size = sum(_size(value) for value in row.content.values())
    if size > MAX_ROW_BYTES:
        return Problem(row.place, "", f"a row of {size} characters; at most {MAX_ROW_BYTES}")
    return {str(name): value for name, value in row.content.items() if value is not None}


def extra(columns: Columns, model: type[RowModel], *read: str) -> Columns:
    """Return the columns that the format does not read, as plain JSON values."""
    known = {info.alias or name for name, info in model.model_fields.items()} | {*read}
    return {name: plain(value) for name, value in columns.items() if name not in known}


def plain(value: object, depth: int = 0) -> object:
    """Return a JSON value: times of Parquet as text, and what has no such form as its type."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case date():
            return value.isoformat()
        case list() | tuple() if depth < _DEEPEST:
            return [plain(item, depth + 1) for item in value]
        case dict() if depth < _DEEPEST:
            return {str(key): plain(item, depth + 1) for key, item in value.items()}
        case _:
            return shown(value)


def _size(value: object, depth: int = 0) -> int:
    """Count the characters of a value, as deep as it is kept."""
    match value:
        case str() | bytes():
            return len(value)
        case list() if depth < _DEEPEST:
            return sum(_size(item, depth + 1) for item in value)
        case dict() if depth < _DEEPEST:
            return sum(len(str(key)) + _size(item, depth + 1) for key, item in value.items())
        case _:
            return 1


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong field of a row."""

    field: str
    message: str


def problem_of(row: Row, faults: Sequence[Fault]) -> Problem:
    """Join a row's faults into one line, with the instance's id where it can be read."""
    where = ""
    match row.content:
        case {"instance_id": str(instance_id)} if re.fullmatch(r"[\w.+-]{1,200}", instance_id):
            where = f" (instance {instance_id})"
    match faults:
        case [fault]:
            return Problem(row.place, fault.field, fault.message + where)
        case _:
            lines = "; ".join(f"{fault.field}: {fault.message}" for fault in faults)
            return Problem(row.place, "", lines + where)


def shown(value: object) -> str:
    """Describe a value in a message: text as a short literal, everything else by its type."""
    match value:
        case None:
            return "nothing"
        case str() if len(value) > _SHOWN:
            return f"{value[:_SHOWN]!r}… ({len(value)} characters)"
        case str():
            return repr(value)
        case dict():
            return "object"
        case _:
            return type(value).__name__


def _fault(error: ErrorDetails) -> Fault:
    field = ".".join(str(part)[:_SHOWN] for part in error["loc"][:_MOST_PARTS])
    found = shown(error["input"])
    match error["type"]:
        case "missing":
            return Fault(field, "missing")
        case "value_error":
            return Fault(field, str(error["ctx"]["error"]))
        case "string_type":
            return Fault(field, f"expected text; found {found}")
        case "too_short":
            return Fault(field, "expected at least one test id; found none")
        case _:
            message = error["msg"].removeprefix("Input should be ").lower()
            return Fault(field, f"expected {message}; found {found}")
