"""Check the fields of rows: what each may hold, and one line for each mistake.

Rows are untrusted; nothing in them is evaluated. Used by the row formats.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from swe_rollout.datasets.column_text import MAX_TESTS, list_value
from swe_rollout.datasets.official_parsers import parser_of
from swe_rollout.datasets.row_files import MAX_ROW_BYTES, Row
from swe_rollout.datasets.source import is_instance_id
from swe_rollout.errors import Problem
from swe_rollout.text.escaping import printable
from swe_rollout.types.instance import BUILTIN_LOG_PARSERS, Evaluation, Expected, Instance

MAX_STATEMENT_BYTES = 1 << 20
_MAX_REPO = 200
_SHOWN = 80
_MOST_PARTS = 4
"""How much of the path to a wrong value is shown (`install_config.test_cmd` has two parts)."""
_DIFF = re.compile(r"^(diff --git |--- )", re.MULTILINE)
_DEEPEST = 50
"""How many levels of lists and objects are kept from a column that is not read."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong field of a row."""

    field: str
    message: str


class WrongRowError(Exception):
    """Signals a row that makes no task; has every fault that was found in it."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(*faults)
        self.faults = faults


def wrong(field: str, message: str) -> WrongRowError:
    """Return the error for a row with one wrong field."""
    return WrongRowError(Fault(field, message))


Columns: TypeAlias = dict[str, object]
"""The columns of a row that have a value."""


def clean(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"contains a NUL byte at character {text.index(chr(0))}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"contains half a surrogate pair at character {error.start}") from None
    return text


def _must(holds: Callable[[str], object], expected: str) -> AfterValidator:
    """Return a check for text, whose error says what was `expected`."""

    def check(text: str) -> str:
        if not holds(text):
            raise ValueError(f"expected {expected}; found {shown(text)}")
        return text

    return AfterValidator(check)


def _statement(text: str) -> str:
    if len(text.encode()) > MAX_STATEMENT_BYTES:
        raise ValueError(f"has {len(text.encode())} bytes; at most {MAX_STATEMENT_BYTES} are taken")
    if not text.strip():
        raise ValueError("expected a text; found nothing")
    return text


def _test_ids(value: object) -> tuple[str, ...]:
    ids = list_value(value) if isinstance(value, str) else value
    expected = "expected a list of test ids or its JSON string"
    if not isinstance(ids, list | tuple):
        raise ValueError(f"{expected}; found {shown(value)}")  # noqa: TRY004 - pydantic's protocol
    if len(ids) > MAX_TESTS:
        raise ValueError(f"has {len(ids)} test ids; at most {MAX_TESTS} are taken")
    return tuple(dict.fromkeys(texts(ids, expected, where=" in the list")))


def texts(values: Sequence[object], expected: str, *, where: str = "") -> tuple[str, ...]:
    """Return a list's texts, none of them empty. Raises ValueError that says what is wrong."""
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{expected}; found {shown(value)}{where}")
        clean(value)
    return tuple(map(str, values))


def _commands(value: object) -> tuple[str, ...]:
    commands = [value] if isinstance(value, str) else value
    expected = "expected a command or a list of them"
    if not isinstance(commands, list) or not commands:
        raise ValueError(f"{expected}; found {shown(value)}")
    return texts(commands, expected)


def log_parser(name: str, *, instance_id: str, version: str = "", field: str = "log_parser") -> str:
    """Return the parser that a row names in `field`. Raises WrongRowError for an unknown one."""
    found = parser_of(name, instance_id=instance_id, version=version)
    if found is not None:
        return found
    known = BUILTIN_LOG_PARSERS
    near = difflib.get_close_matches(name[:_MAX_REPO].removeprefix("parse_log_"), known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise wrong(
        field,
        f"there is no parser {shown(name)}; {hint}docs/how-to/datasets.md lists them, and "
        "says how a job brings its own",
    )


Text = Annotated[str, AfterValidator(clean)]
TestIds = Annotated[tuple[str, ...], BeforeValidator(_test_ids)]
Commands = Annotated[tuple[str, ...], BeforeValidator(_commands)]
Image = Annotated[
    Text,
    _must(re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}").fullmatch, "the name of an image"),
]
Diff = Annotated[Text, _must(lambda text: not text.strip() or _DIFF.search(text), "a diff")]
InstanceId = Annotated[
    Text,
    _must(
        is_instance_id,
        "1 to 200 letters, digits and `._+-`, no leading dot and no `..`, because it names a "
        "folder",
    ),
]
Repo = Annotated[
    Text,
    _must(lambda text: text.strip() and len(text) <= _MAX_REPO, f"1 to {_MAX_REPO} characters"),
]
Commit = Annotated[
    Text, _must(re.compile(r"[0-9a-f]{7,64}").fullmatch, "a commit id in hexadecimal")
]
Statement = Annotated[Text, AfterValidator(_statement)]
Workdir = Annotated[
    Text,
    _must(lambda text: text.startswith("/") and ".." not in text.split("/"), "an absolute path"),
]
Version = Annotated[str, BeforeValidator(lambda value: str(value)[:_MAX_REPO])]


Seconds = Annotated[float, Field(gt=0, le=86_400, strict=False)]
"""The time limit for a row's tests, at most a day."""


class RowModel(BaseModel):
    """The columns that a format reads from its rows; other columns are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class TaskRow(RowModel):
    """A row with the columns of SWE-bench that most later formats share."""

    instance_id: InstanceId
    repo: Repo
    base_commit: Commit
    problem_statement: Statement
    test_patch: Diff
    patch: Diff = ""
    fail_to_pass: TestIds = Field(alias="FAIL_TO_PASS")
    pass_to_pass: TestIds = Field(alias="PASS_TO_PASS")
    # Columns that name the image in copies of the dataset.
    image_name: Image | None = None
    docker_image: Image | None = None
    test_timeout_s: Seconds = 1800.0

    def task(
        self, columns: Columns, *, source: str, image: str, commands: Sequence[str], read: str = ""
    ) -> Instance:
        """Return the instance made from these columns; the format passes whatever else it has.

        `read` names further columns that the format reads.
        """
        return Instance(
            instance_id=self.instance_id,
            source=source,
            repo=self.repo,
            problem_statement=self.problem_statement,
            image=image,
            base_commit=self.base_commit,
            gold_patch=self.patch,
            test_patch=self.test_patch,
            evaluation=Evaluation(commands=tuple(commands), timeout_s=self.test_timeout_s),
            expected=Expected(self.fail_to_pass, self.pass_to_pass),
            extra=extra(columns, type(self), *read.split()),
        )


RowT = TypeVar("RowT", bound=RowModel)


def checked(model: type[RowT], columns: Columns) -> RowT:
    """Return the checked fields of a row. Raises WrongRowError, which names every wrong one."""
    try:
        return model.model_validate(columns)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise WrongRowError(*(_meant(_fault(each), columns) for each in details)) from None


def _meant(fault: Fault, columns: Columns) -> Fault:
    """Return the fault; for a missing column, suggest one that may be it under another name."""
    if fault.message != "missing":
        return fault
    by_lower = {name.lower(): name for name in columns}
    close = difflib.get_close_matches(fault.field.lower(), list(by_lower), n=1, cutoff=0.75)
    hint = f"; is it {printable(by_lower[close[0]])}?" if close else ""
    return Fault(fault.field, f"missing{hint}")


def columns_of(content: object) -> Columns:
    """Return a row's columns. Raises WrongRowError when the row is no object, or a huge one.

    A column without a value counts as absent: Parquet has no other way to leave one out.
    """
    if not isinstance(content, dict):
        hint = "; a file of one list is named .json" if isinstance(content, list) else ""
        raise wrong("", f"expected an object; found {shown(content)}{hint}")
    size = sum(_size(value) for value in content.values())
    if size > MAX_ROW_BYTES:
        raise wrong("", f"a row of {size} characters; at most {MAX_ROW_BYTES}")
    return {str(name): value for name, value in content.items() if value is not None}


def extra(columns: Columns, model: type[RowModel], *read: str) -> Columns:
    """Return the columns that the format does not read, as plain JSON values."""
    known = {info.alias or name for name, info in model.model_fields.items()} | {*read}
    return {name: plain(value) for name, value in columns.items() if name not in known}


def plain(value: object, depth: int = 0) -> object:
    """Return a JSON value: Parquet's times as text, values without a JSON form as their type."""
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
    """Count the characters of a value, down to the depth that is kept."""
    match value:
        case str() | bytes():
            return len(value)
        case list() if depth < _DEEPEST:
            return sum(_size(item, depth + 1) for item in value)
        case dict() if depth < _DEEPEST:
            return sum(len(str(key)) + _size(item, depth + 1) for key, item in value.items())
        case _:
            return 1


def problem_of(row: Row, faults: Sequence[Fault]) -> Problem:
    """Join a row's faults into one line, with the instance's id if it can be read."""
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
