"""A notebook as text: its cells, their positions, and edits of a single cell.

An edit writes one cell and keeps every other byte of the file: the key order, indentation and
numbers of other cells are never parsed and rewritten.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.tools.base import ToolError

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_BOM: Final = "\ufeff"
_MAX_CELLS: Final = 5000
_FORMAT: Final = 4
_FIRST_MINOR_WITH_IDS: Final = 5
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell, and its position in the text."""

    value: Mapping[str, object]
    start: int
    end: int

    @property
    def kind(self) -> str:
        """`code`, `markdown` or `raw`."""
        return str(self.value.get("cell_type", ""))

    @property
    def id(self) -> str | None:
        """The id of the cell, in notebooks with cell ids."""
        found = self.value.get("id")
        return found if isinstance(found, str) else None

    @property
    def source(self) -> str:
        """The text of the cell."""
        return joined(self.value.get("source"))


@dataclass(frozen=True, slots=True)
class Notebook:
    """A notebook of format 4."""

    text: str
    cells: tuple[Cell, ...]
    array_start: int
    """Where the array of cells starts; it ends before `array_end`."""
    array_end: int
    has_ids: bool
    language: str

    @classmethod
    def read(cls, data: bytes) -> Notebook:
        """Read a file. ToolError says why it is not a notebook."""
        try:
            text = data.decode()
            return cls._parse(text)
        except UnicodeDecodeError as error:
            raise ToolError(f"it is not UTF-8 at byte {error.start}") from error
        except RecursionError as error:
            raise ToolError("it is nested too deeply") from error
        except ValueError as error:
            raise ToolError(f"it is not JSON: {error}") from error

    @classmethod
    def _parse(cls, text: str) -> Notebook:
        reader = _Reader(text)
        values = dict(reader.members())
        version, minor = values.get("nbformat"), values.get("nbformat_minor")
        if version != _FORMAT or reader.array is None:
            raise ToolError(f"only notebooks of format {_FORMAT} can be used")
        return cls(
            text,
            tuple(reader.cells),
            *reader.array,
            has_ids=isinstance(minor, int) and minor >= _FIRST_MINOR_WITH_IDS,
            language=_language(values.get("metadata")),
        )

    def number_of(self, cell_id: str) -> int:
        """Return the number of the cell with an id; `cell-3` is cell 3 if no id is `cell-3`."""
        for number, cell in enumerate(self.cells):
            if cell.id == cell_id:
                return number
        by_number = re.fullmatch(r"cell-([0-9]{1,9})", cell_id)
        if by_number is None or int(by_number[1]) >= len(self.cells):
            raise ToolError(f"there is no cell {cell_id[:80]!r}; NotebookRead shows the ids")
        return int(by_number[1])

    def replaced(self, number: int, source: str, kind: str | None) -> str:
        """Return the text with the cell's source replaced and its outputs dropped."""
        cell = self.cells[number]
        as_lines = not isinstance(cell.value.get("source"), str)
        value = {**cell.value, "source": _source(source, as_lines=as_lines)}
        value = _of_kind(value, kind or cell.kind)
        return self.text[: cell.start] + self._written(value) + self.text[cell.end :]

    def inserted(self, number: int, source: str, kind: str) -> str:
        """Return the text with a new cell that gets this number."""
        as_lines = not self.cells or not isinstance(self.cells[0].value.get("source"), str)
        own: dict[str, object] = {"cell_type": kind}
        if self.has_ids:
            own["id"] = self._new_id(number, source)
        own |= {"metadata": {}, "source": _source(source, as_lines=as_lines)}
        written = self._written(_of_kind(own, kind))
        if not self.cells:
            end = self._outer_gap()
            new = f"[{self._gap()}{written}{end}]"
            return self.text[: self.array_start] + new + self.text[self.array_end :]
        if number < len(self.cells):
            at = self.cells[number].start
            return f"{self.text[:at]}{written},{self._gap()}{self.text[at:]}"
        at = self.cells[-1].end
        return f"{self.text[:at]},{self._gap()}{written}{self.text[at:]}"

    def deleted(self, number: int) -> str:
        """Return the text without a cell."""
        cells = self.cells
        if len(cells) == 1:
            return f"{self.text[: self.array_start]}[]{self.text[self.array_end :]}"
        if number + 1 < len(cells):
            start, end = cells[number].start, cells[number + 1].start
        else:
            start, end = cells[number - 1].end, cells[number].end
        return self.text[:start] + self.text[end:]

    def _gap(self) -> str:
        """Return the text before a cell: a line end and indentation, if any."""
        if self.cells:
            between = self.text[self.array_start + 1 : self.cells[0].start]
            if len(self.cells) > 1 and "\n" not in between:
                between = self.text[self.cells[0].end : self.cells[1].start].partition(",")[2]
            return between
        outer = self._outer_gap()
        return outer + outer.rpartition("\n")[2] if "\n" in outer else ""

    def _outer_gap(self) -> str:
        """Return the text before the notebook's first key."""
        found = re.match(r"\ufeff?[ \t\r\n]*\{([ \t\r\n]*)", self.text)
        return found[1] if found is not None else ""

    def _written(self, value: Mapping[str, object]) -> str:
        """Return a cell in the style of the file's other cells."""
        gap = self._gap()
        ascii_only = self.text.isascii() and "\\u" in self.text
        if "\n" not in gap:
            separators = (", ", ": ") if re.search(r'":[ ]', self.text) else (",", ":")
            return _dumped(value, ascii_only=ascii_only, indent=None, separators=separators)
        outer = self._outer_gap().rpartition("\n")[2]
        step = outer or " "
        text = _dumped(value, ascii_only=ascii_only, indent=step, separators=(",", ": "))
        line_end = "\r\n" if "\r\n" in gap else "\n"
        return text.replace("\n", line_end + gap.rpartition("\n")[2])

    def _new_id(self, number: int, source: str) -> str:
        taken = {cell.id for cell in self.cells}
        for attempt in range(len(taken) + 1):
            seed = f"{number}:{attempt}:{source}".encode(errors="replace")
            found = hashlib.sha256(seed).hexdigest()[:8]
            if found not in taken:
                break
        return found


def joined(value: object) -> str:
    """Join a value that notebooks store either as a text or as a list of lines."""
    if isinstance(value, list):
        return "".join(each for each in value if isinstance(each, str))
    return value if isinstance(value, str) else ""


class _Reader:
    """Reads a notebook's outer object, and its cells one by one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith(_BOM) else 0
        self.cells: list[Cell] = []
        self.array: tuple[int, int] | None = None
        """Where the array of cells starts and ends."""

    def members(self) -> Iterator[tuple[str, object]]:
        """Yield all members except the cells. Raises ToolError or ValueError for bad JSON."""
        seen: set[str] = set()
        for _ in self._items("{", "}"):
            name, _, _ = self._value()
            if not isinstance(name, str) or name in seen:
                raise ToolError(f"a key is no text or there twice at character {self._at}")
            seen.add(name)
            self._skip()
            self._expect(":")
            self._skip()
            if name == "cells":
                self._read_cells()
            else:
                yield name, self._value()[0]
        self._skip()
        if self._at != len(self._text):
            raise ToolError("it goes on behind its end")

    def _read_cells(self) -> None:
        start = self._at
        for _ in self._items("[", "]"):
            value, first, end = self._value()
            if not isinstance(value, dict) or len(self.cells) == _MAX_CELLS:
                raise ToolError(f"its cells are not an array of at most {_MAX_CELLS} objects")
            self.cells.append(Cell(value, first, end))
        self.array = (start, self._at)

    def _items(self, opening: str, closing: str) -> Iterator[None]:
        """Skip the brackets and commas around items, each of which the caller reads."""
        self._skip()
        self._expect(opening)
        self._skip()
        while not self._text.startswith(closing, self._at):
            yield
            self._skip()
            if not self._text.startswith(closing, self._at):
                self._expect(",")
                self._skip()
                if self._text.startswith(closing, self._at):
                    raise ToolError(f"it is not JSON: a comma before {closing}")
        self._at += len(closing)

    def _value(self) -> tuple[object, int, int]:
        start = self._at
        value, self._at = _DECODER.raw_decode(self._text, start)
        return value, start, self._at

    def _expect(self, what: str) -> None:
        if not self._text.startswith(what, self._at):
            raise ToolError(f"it is not JSON: {what} is missing at character {self._at}")
        self._at += len(what)

    def _skip(self) -> None:
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found is not None else self._at


def _of_kind(value: Mapping[str, object], kind: str) -> dict[str, object]:
    """Return a cell converted to `kind`: only code has outputs and a count, both empty at first."""
    cell = {**value, "cell_type": kind}
    if kind == "code":
        return {**cell, "execution_count": None, "outputs": []}
    return {name: each for name, each in cell.items() if name not in {"execution_count", "outputs"}}


def _source(text: str, *, as_lines: bool) -> str | list[str]:
    if not as_lines:
        return text
    lines = text.split("\n")
    ended = [f"{line}\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def _language(metadata: object) -> str:
    match metadata:
        case {"language_info": {"name": str(name)}} | {"kernelspec": {"language": str(name)}}:
            return name
        case _:
            return ""


def _dumped(
    value: Mapping[str, object],
    *,
    ascii_only: bool,
    indent: str | None,
    separators: tuple[str, str],
) -> str:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate can only be stored as an escape.
        return json.dumps(value, indent=indent, separators=separators)
    return text
