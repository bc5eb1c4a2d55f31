"""Read a dataset source: call it, check what it returns, normalise its lists.

A source may be anyone's code: whatever goes wrong in it becomes an error that names the source.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec

from swe_rollout.datasets import DatasetSource
from swe_rollout.errors import (
    DatasetError,
    ExtensionFailedError,
    Problem,
    SweRolloutError,
    failure_of,
)
from swe_rollout.types.instance import Instance

MAX_TASKS = 1_000_000
"""The most tasks of a source; one that returns more probably never ends."""
_AT_A_TIME = 100
ItemT = TypeVar("ItemT")
_WORDS = {"array": "a list", "str": "text", "null": "nothing", "object": "an object"}
"""Words for the type names in msgspec's messages."""


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A dataset source and the name under which it was requested."""

    name: str
    tasks: DatasetSource

    async def read(
        self, *, base_dir: Path, on_progress: Callable[[str], None]
    ) -> tuple[Instance | Problem, ...]:
        """Return the source's tasks, with a problem in place of each one that can't be used.

        Raises DatasetError when the source breaks.
        """
        offered: dict[str, object] = {"base_dir": base_dir, "on_progress": on_progress}
        call = partial(self.tasks, **{k: v for k, v in offered.items() if self._takes(k)})
        with self._broken():
            # A plain function may read files or use a network, so it runs in a thread.
            found = await _listed(await asyncio.to_thread(self._called, call))
        return tuple([each async for each in self._checked(found)])

    def _takes(self, parameter: str) -> bool:
        """Return whether the source has this parameter and `with` does not set it."""
        try:
            signature = inspect.signature(self.tasks)
        except (TypeError, ValueError):  # callables written in C may have none
            return False
        filled = self.tasks.keywords if isinstance(self.tasks, partial) else {}
        return parameter in signature.parameters and parameter not in filled

    def _called(self, call: Callable[[], object]) -> object:
        with self._broken():
            returned = call()
            return _items(returned) if isinstance(returned, Iterable) else returned

    async def _checked(self, found: Sequence[object]) -> AsyncIterator[Instance | Problem]:
        places: dict[str, str] = {}
        number = 0
        async for value in paced(found):
            number += 1
            place = f"{self.name}: task {number}"
            result = value if isinstance(value, Problem) else _checked(value, place)
            if not isinstance(result, Problem):
                first = places.setdefault(result.instance_id, place)
                if first != place:
                    message = f"{result.instance_id} is also {first}"
                    result = Problem(place, "instance_id", message)
            yield result

    @contextmanager
    def _broken(self) -> Iterator[None]:
        """Raise a DatasetError for whatever the source raises, except errors of this package."""
        try:
            yield
        except SweRolloutError:
            raise
        except (Exception, SystemExit) as error:
            failure = failure_of(error, ExtensionFailedError, f"the dataset source {self.name}")
            broken = DatasetError(
                failure.what,
                [Problem(self.name, "", failure.why)],
                fix="run its contract tests (docs/how-to/extend/datasets.md)",
            )
            broken.trace = failure.trace
            raise broken from error


async def paced(items: Iterable[ItemT]) -> AsyncIterator[ItemT]:
    """Yield items and let other code run in between, such as the handler of ^C."""
    for number, item in enumerate(items):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)
        yield item


async def _listed(returned: object) -> list[object]:
    while inspect.isawaitable(returned):
        returned = await returned
    if not isinstance(returned, AsyncIterable):
        return _items(returned)
    items: list[object] = []
    async for each in returned:
        items.append(each)
        _check_count(items)
    return items


def _items(returned: object) -> list[object]:
    if not isinstance(returned, Iterable) or isinstance(returned, str | bytes | Mapping):
        raise TypeError(f"expected instances; it returned a {type(returned).__name__}")
    items = list(islice(returned, MAX_TASKS + 1))
    _check_count(items)
    return items


def _check_count(items: Sequence[object]) -> None:
    if len(items) > MAX_TASKS:
        raise ValueError(f"it returned more than {MAX_TASKS:,} tasks; does it end?")


def is_instance_id(text: str) -> bool:
    """Return whether a text can be a task's id, which names folders and pods."""
    return bool(re.fullmatch(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,199}", text)) and ".." not in text


def _checked(value: object, place: str) -> Instance | Problem:
    """Return the instance with its lists as tuples, or the first problem with it."""
    if not isinstance(value, Instance):
        return Problem(place, "", f"expected an Instance; found a {type(value).__name__}")
    known = {field.name: getattr(value, field.name) for field in fields(Instance)}
    try:
        plain = msgspec.convert(msgspec.to_builtins(known), Instance)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        for plain_name, word in _WORDS.items():
            message = message.replace(f"`{plain_name}`", word)
        return Problem(place, path.strip("`").removeprefix("$."), message.lower())
    except TypeError as error:
        return Problem(place, "", str(error))
    if not is_instance_id(plain.instance_id):
        expected = "expected 1 to 200 letters, digits and `._+-`, no leading dot and no `..`"
        return Problem(place, "instance_id", f"{expected}; found {plain.instance_id[:80]!r}")
    for name, text in (("problem_statement", plain.problem_statement), ("image", plain.image)):
        if not text.strip():
            return Problem(place, name, "expected a text; found nothing")
    return replace(
        value,
        evaluation=plain.evaluation,
        rule=plain.rule,
        expected=plain.expected,
        hidden_paths=plain.hidden_paths,
        test_files=plain.test_files,
    )
