"""Dataset sources: every form they may have, and everything they may do wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swe_rollout.datasets import DATASETS, swebench
from swe_rollout.datasets.source import NamedSource
from swe_rollout.errors import DatasetError, PrerequisiteError, Problem
from swe_rollout.testing.extensions.datasets import DatasetContract
from swe_rollout.types.instance import Evaluation, Expected, Instance, Rule
from unit.datasets.row_parts import GOOD, lines

ONE = Instance(instance_id="one", problem_statement="fix it", image="image:1")
TWO = replace(ONE, instance_id="two")


class TestSwebench(DatasetContract):
    @pytest.fixture
    def base_dir(self, tmp_path: Path) -> Path:
        (tmp_path / "rows.jsonl").write_bytes(lines(GOOD))
        return tmp_path

    @pytest.fixture
    def source(self) -> Callable[..., object]:
        return partial(swebench.load, uri="rows.jsonl")


async def read(source: Any, tmp_path: Path = Path()) -> list[object]:
    said: list[str] = []
    found = await NamedSource("mine", source).read(base_dir=tmp_path, on_progress=said.append)
    return [*found, *said]


def generator() -> Iterator[Instance]:
    yield from (ONE, TWO)


async def coroutine() -> list[Instance]:
    return [ONE, TWO]


async def async_generator() -> AsyncIterator[Instance]:
    for each in (ONE, TWO):
        yield each


@dataclass
class Folder:
    """A source that is an object."""

    names: tuple[str, ...]

    def __call__(self) -> tuple[Instance, ...]:
        return tuple(replace(ONE, instance_id=name) for name in self.names)


@pytest.mark.parametrize(
    "source", [lambda: [ONE, TWO], generator, coroutine, async_generator, Folder(("one", "two"))]
)
async def test_sync_and_async_functions_and_objects_are_sources(source: object) -> None:
    assert await read(source) == [ONE, TWO]


async def test_a_class_is_made_with_the_parameters() -> None:
    source = DATASETS.load(f"{__name__}:Folder", {"names": ("a", "b")})
    assert [each.instance_id for each in await read(source) if isinstance(each, Instance)] == [
        "a",
        "b",
    ]


async def test_base_dir_and_progress_are_given_to_those_that_ask(tmp_path: Path) -> None:
    def asking(base_dir: Path, *, on_progress: Callable[[str], None]) -> list[Instance]:
        on_progress("looking")
        return [replace(ONE, repo=str(base_dir))]

    assert await read(asking, tmp_path) == [replace(ONE, repo=str(tmp_path)), "looking"]
    own = partial(asking, base_dir=Path("/own"))
    assert await read(own, tmp_path) == [replace(ONE, repo="/own"), "looking"]


async def test_problems_of_a_source_keep_their_place() -> None:
    problem = Problem("rows:2", "image", "missing")
    assert await read(lambda: [ONE, problem, TWO]) == [ONE, problem, TWO]


async def test_lists_become_tuples_and_texts_become_rules() -> None:
    loose: Any = replace(
        ONE,
        evaluation=Evaluation(commands=["pytest -rA"], timeout_s=60),  # type: ignore[arg-type]
        expected=Expected(["a"], ["b"]),  # type: ignore[arg-type]
        rule="fail_only",  # type: ignore[arg-type]
    )
    [found] = await read(lambda: [loose])
    assert isinstance(found, Instance)
    assert found.evaluation == Evaluation(commands=("pytest -rA",), timeout_s=60.0)
    assert found.expected == Expected(("a",), ("b",))
    assert found.rule is Rule.FAIL_ONLY


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"instance_id": "x"}, "mine: task 2: expected an Instance; found a dict"),
        (ONE, "mine: task 2: instance_id: one is also mine: task 1"),
        (replace(TWO, instance_id="../x"), "mine: task 2: instance_id: expected 1 to 200 letters"),
        (replace(TWO, image=" "), "mine: task 2: image: expected a text; found nothing"),
        (
            replace(TWO, evaluation=Evaluation(commands="pytest")),  # type: ignore[arg-type]
            "mine: task 2: evaluation.commands: expected a list, got text",
        ),
        (
            replace(TWO, repo=None),  # type: ignore[arg-type]
            "mine: task 2: repo: expected text, got nothing",
        ),
        (replace(TWO, gold_patch=Path()), "mine: task 2: "),  # type: ignore[arg-type]
    ],
)
async def test_a_task_that_can_not_be_used_is_a_problem_with_its_place(
    value: object, message: str
) -> None:
    first, second = await read(lambda: [ONE, value])
    assert first == ONE
    assert isinstance(second, Problem)
    assert message in str(second)


def raising() -> list[Instance]:
    return [next(iter([]))]


def late() -> Iterator[Instance]:
    yield ONE
    raise OSError("no disk")


async def async_raising() -> list[Instance]:
    raise KeyError("tasks")


def wants_path(path: str) -> list[Instance]:
    return [replace(ONE, repo=path)]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (raising, "StopIteration"),
        (late, "OSError: no disk"),
        (async_raising, "KeyError: 'tasks'"),
        (wants_path, "missing 1 required positional argument: 'path'"),
        (lambda: None, "expected instances; it returned a NoneType"),
        (lambda: "rows", "expected instances; it returned a str"),
        (lambda: {"one": ONE}, "expected instances; it returned a dict"),
        (lambda: ONE, "expected instances; it returned a Instance"),
    ],
)
async def test_a_source_that_breaks_is_named(source: object, why: str) -> None:
    with pytest.raises(DatasetError, match="the dataset source mine failed") as caught:
        await read(source)
    [problem] = caught.value.problems
    assert problem.place == "mine"
    assert why in problem.message


async def test_errors_of_the_package_pass_as_they_are() -> None:
    def without_key() -> list[Instance]:
        raise PrerequisiteError("there is no API key")

    with pytest.raises(PrerequisiteError):
        await read(without_key)


async def test_a_source_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swe_rollout.datasets.source.MAX_TASKS", 100)

    def endless() -> Iterator[Instance]:
        while True:
            yield ONE

    async def endless_async() -> AsyncIterator[Instance]:
        while True:
            yield ONE

    for source in (endless, endless_async):
        with pytest.raises(DatasetError) as refused:
            await read(source)
        assert "more than 100 tasks" in str(refused.value.problems[0])
