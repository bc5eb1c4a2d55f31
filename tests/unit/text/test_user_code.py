"""The user's lines in a traceback: found behind libraries and causes, bounded, never ours."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import Callable

import pytest

from swe_rollout.errors import (
    EngineError,
    ExtensionFailedError,
    GraderError,
    InternalError,
    boundary,
    caught,
)
from swe_rollout.spec.load import load_job
from swe_rollout.text.user_code import defined_at, said, user_code


def deep(n: int) -> int:
    return deep(n + 1)


async def group() -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(json.loads, "{"))


class OddError(Exception):
    def __str__(self) -> str:
        raise ValueError


def odd() -> None:
    raise OddError


def long() -> None:
    raise RuntimeError("\x1b[2J" + "line\n" * 100_000)


def nested() -> None:
    error: Exception = KeyError("inmost")
    for _ in range(5000):
        error = ExceptionGroup("many", [error])
    raise error


@dataclasses.dataclass
class Made:
    number: int

    def __post_init__(self) -> None:
        self.number = 1 // self.number


BROKEN: list[tuple[Callable[[], object], str]] = [
    (lambda: deep(0), "return deep(n + 1)"),
    (lambda: json.loads("{"), 'json.loads("{")'),
    (lambda: asyncio.run(group()), ""),
    (odd, "raise OddError"),
    (long, "raise RuntimeError("),
    (nested, "raise error"),
    (lambda: Made(0), "self.number = 1 // self.number"),
    (lambda: eval("1 / 0"), 'eval("1 / 0")'),  # noqa: S307 - what it is about
]


@pytest.mark.parametrize(("broken", "source"), BROKEN)
def test_the_innermost_line_of_the_user_s_is_named_and_what_is_kept_is_bounded(
    broken: Callable[[], object], source: str
) -> None:
    with pytest.raises(ExtensionFailedError) as failed, caught(EngineError, "the engine"):
        broken()

    failure = failed.value
    assert source in failure.why.rpartition("(unit/text/test_user_code.py:")[2]
    assert 'File "unit/text/test_user_code.py", line' in failure.trace
    assert len(str(failure)) + len(failure.trace) < 5000
    assert "\x1b" not in f"{failure}{failure.trace}"
    assert "\n" not in failure.why
    assert not failure.retryable


def test_what_lies_outside_the_code_may_pass_and_keeps_its_owner() -> None:
    with pytest.raises(EngineError) as failed, caught(EngineError, "the engine"):
        raise ConnectionResetError("gone")
    assert failed.value.retryable
    assert "raise ConnectionResetError" in failed.value.trace


def test_an_error_of_this_package_s_own_is_not_the_user_s() -> None:
    with pytest.raises(InternalError) as failed, caught(InternalError, "it"):
        load_job(3)  # type: ignore[arg-type] # raises within
    assert failed.value.trace == ""
    assert user_code(failed.value.__cause__ or failed.value) is None


def test_what_returns_the_wrong_thing_is_named_by_where_it_is_defined() -> None:
    wrapped = functools.wraps(deep)(lambda n: n)

    for each in (deep, functools.partial(deep, 1), wrapped, OddError, OddError()):
        place = defined_at(each)
        assert place is not None
        assert place.where.startswith("unit/text/test_user_code.py:")
        assert "def deep(n: int)" in place.where or "class OddError" in place.where
    assert all(defined_at(other) is None for other in (len, load_job, 3, None))

    with pytest.raises(ExtensionFailedError) as failed, caught(GraderError, "it", by=deep):
        float(str(None))
    assert failed.value.trace


async def test_a_cancellation_is_caught_only_if_the_user_s_code_made_it_up() -> None:
    with pytest.raises(ExtensionFailedError, match="CancelledError"):
        async with boundary(InternalError, "it"):
            raise asyncio.CancelledError

    async def waits() -> None:
        async with boundary(InternalError, "it"):
            await asyncio.sleep(60)

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_first_error_of_a_group_is_said() -> None:
    assert said(ExceptionGroup("many", [KeyError("a"), KeyError("b")])) == "KeyError: 'a'"
