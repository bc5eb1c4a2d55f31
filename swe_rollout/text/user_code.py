"""Find the lines of the user's own code in a traceback, for errors and records.

Frames of this package, of the standard library and of installed packages are left out. What is
returned is bounded and printable, whatever the code, its files and its exceptions contain.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Final

from swe_rollout.text.escaping import one_line, printable

BROUGHT: Final = "swe-rollout-extension-"
"""How the folders are named into which a process writes the files that a job brought."""
_FRAMES: Final = 5
_LINE_CHARS: Final = 160
_MESSAGE_CHARS: Final = 1000
_CHAIN: Final = 16
"""The most causes that are looked at."""
_DEFINITION: Final = re.compile(r"\s*(async\s+)?(def|class)\b")
_SITES: Final = ("site-packages", "dist-packages")
_PACKAGE: Final = str(Path(__file__).resolve().parents[1])
_STDLIB: Final = sysconfig.get_path("stdlib")


class _Origin(Enum):
    PACKAGE = 0
    """This package."""
    STDLIB = 1
    INSTALLED = 2
    USER = 3


@dataclass(frozen=True, slots=True)
class UserCode:
    """The user's part of a traceback."""

    where: str
    """The innermost line: `tools.py:9: return total / count`."""
    trace: str
    """The last few frames and the exception, as Python prints them."""
    is_bug: bool
    """Whether the code is at fault, rather than a file, a network or a service that it uses."""


@dataclass(frozen=True, slots=True)
class _Line:
    file: str
    number: int
    name: str
    source: str

    @classmethod
    def of(cls, frame: FrameType, number: int) -> _Line:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        source = linecache.getline(path, number, frame.f_globals)
        return cls(_shown(path), number, name, one_line(source, limit=_LINE_CHARS))

    @property
    def where(self) -> str:
        place = f"{self.file}:{self.number}"
        return f"{place}: {self.source}" if self.source else place

    def __str__(self) -> str:
        source = f"\n    {self.source}" if self.source else ""
        return f'  File "{self.file}", line {self.number}, in {self.name}{source}'


def user_code(error: BaseException, *, is_blamed: bool = False) -> UserCode | None:
    """Return the user's code that raised an exception; None if other code did.

    With `is_blamed`, it need not have raised it itself: it may have called what did, and may be
    an installed package.
    """
    every = list(chain(error))
    for each in every:
        frames = list(walk_tb(each.__traceback__))
        origins = [_origin(frame) for frame, _ in frames]
        wanted = _Origin.USER
        if is_blamed and wanted not in origins:
            wanted = _Origin.INSTALLED
        raised = next((o for o in reversed(origins) if o in (_Origin.PACKAGE, wanted)), None)
        if wanted not in origins or not (is_blamed or raised is wanted):
            continue
        theirs = [pair for pair, o in zip(frames, origins, strict=True) if o is wanted]
        lines = [_Line.of(frame, number) for frame, number in theirs[-_FRAMES:]]
        is_outside = origins[-1] is _Origin.INSTALLED or any(isinstance(e, OSError) for e in every)
        trace = "\n".join([*map(str, lines), said(each)])
        return UserCode(lines[-1].where, trace, not is_outside)
    return None


def said(error: BaseException) -> str:
    """Return the type and the message of an exception on one line; its own `str` may fail."""
    error = next(chain(error))
    try:
        text = one_line(str(error), limit=_MESSAGE_CHARS)
    except Exception as broken:  # noqa: BLE001 - anyone's code
        text = f"its message can't be read: {type(broken).__name__}"
    return f"{type(error).__name__}: {text}".removesuffix(": ")


def defined_at(value: object) -> UserCode | None:
    """Return where the user's function or class is defined; None for other code."""
    while isinstance(value, functools.partial):
        value = value.func
    found = inspect.unwrap(value) if inspect.isroutine(value) else value
    try:
        made = found if inspect.isroutine(found) or inspect.isclass(found) else type(found)
        path, (source, number) = inspect.getfile(made), inspect.getsourcelines(made)
    except (TypeError, OSError, ValueError):
        return None
    if _is_within(path, _PACKAGE):
        return None
    # Decorators are above the line that names it.
    start = next((at for at, text in enumerate(source) if _DEFINITION.match(text)), 0)
    shown = one_line(source[start], limit=_LINE_CHARS)
    line = _Line(_shown(path), number + start, made.__name__, shown)
    return UserCode(line.where, str(line), is_bug=True)


def was_cancelled() -> bool:
    """Whether a CancelledError here comes from a cancellation of this task."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes; before a group, the first of its exceptions."""
    left: BaseException | None = error
    for _ in range(_CHAIN):
        if left is None:
            return
        first = left
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        yield first
        if first is not left:
            yield left
        left = first.__cause__ or (None if first.__suppress_context__ else first.__context__)


def _origin(frame: FrameType) -> _Origin:
    path = frame.f_code.co_filename
    if _is_within(path, _PACKAGE):
        return _Origin.PACKAGE
    if any(site in path for site in _SITES):
        return _Origin.INSTALLED
    # Generated, as by dataclasses and chat templates; a program given by `-c` is not.
    is_generated = path.startswith("<") and frame.f_globals.get("__name__") != "__main__"
    is_ignored = is_generated or _is_within(path, _STDLIB)
    return _Origin.STDLIB if is_ignored else _Origin.USER


def _is_within(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}{os.sep}")


def _shown(path: str) -> str:
    """Return the path from where modules are imported, or from the working directory."""
    if Path(path).parent.name.startswith(BROUGHT):
        return Path(path).name
    roots = {str(Path(each).absolute()) for each in ("", *sys.path)} - {os.sep}
    above = max((root for root in roots if _is_within(path, root)), key=len, default="")
    return printable(path.removeprefix(above + os.sep) if above else path)
