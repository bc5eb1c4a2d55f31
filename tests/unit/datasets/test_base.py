"""Which rows become the job's tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from swe_rollout.datasets.base import LoadedDataset, load
from swe_rollout.errors import DatasetError
from swe_rollout.extension import ExtensionError
from swe_rollout.spec.dataset import Dataset, ReleasePairsDataset, SwebenchDataset
from swe_rollout.types.instance import Instance
from unit.datasets.row_parts import GOOD

IDS = ("django__django-1", "django__django-2", "sympy__sympy-1", "pallets__flask-1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    text = "\n".join(json.dumps(GOOD | {"instance_id": name}) for name in IDS)
    (tmp_path / "rows.jsonl").write_text(text)
    (tmp_path / "bad.jsonl").write_text(f"{text}\nnonsense\n")
    return tmp_path


async def chosen(folder: Path, dataset: Dataset) -> LoadedDataset:
    return await load(dataset, base_dir=folder, on_progress=lambda _: None)


def rows(
    name: str = "rows.jsonl",
    *,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    part: str = "",
    skip_bad_rows: bool = False,
) -> Dataset:
    return Dataset(
        swebench=SwebenchDataset(uri=name),
        include=include,
        exclude=exclude,
        slice=part,
        skip_bad_rows=skip_bad_rows,
    )


async def names(folder: Path, dataset: Dataset) -> tuple[str, ...]:
    return tuple(i.instance_id for i in (await chosen(folder, dataset)).instances)


async def test_without_filters_every_row_is_taken_in_order(folder: Path) -> None:
    assert await names(folder, rows()) == IDS


async def test_include_exclude_and_slice_apply_in_this_order(folder: Path) -> None:
    dataset = rows(include=("django__*", "sympy__sympy-1"), exclude=("*-1",))
    assert await names(folder, dataset) == ("django__django-2",)
    assert await names(folder, rows(exclude=("sympy*",), part="1:")) == (IDS[1], IDS[3])
    assert await names(folder, rows(part="::-2")) == (IDS[3], IDS[1])


async def test_an_include_that_matches_nothing_suggests_the_nearest_task(folder: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        await chosen(folder, rows(include=("djagno__django-2", "sympy*")))
    [problem] = caught.value.problems
    assert str(problem) == (
        "dataset.include: djagno__django-2: matches none of 4 tasks; did you mean django__django-2?"
    )


async def test_filters_that_leave_nothing_say_which_step_did(folder: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        await chosen(folder, rows(include=("django*",), exclude=("*-1",), part="5:"))
    [problem] = caught.value.problems
    assert problem.message == "4 tasks; include leaves 2, exclude 1, slice 5: 0"
    assert caught.value.fix


async def test_a_bad_row_refuses_the_dataset_with_every_problem(folder: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        await chosen(folder, rows("bad.jsonl"))
    assert [problem.place for problem in caught.value.problems] == ["bad.jsonl:5"]
    assert caught.value.exit_code == 2
    assert "skipBadRows" in caught.value.fix


async def test_bad_rows_that_are_skipped_are_reported(folder: Path) -> None:
    loaded = await chosen(folder, rows("bad.jsonl", skip_bad_rows=True))
    assert len(loaded.instances) == 4
    assert [problem.place for problem in loaded.problems] == ["bad.jsonl:5"]


async def test_skipping_every_row_is_an_error_that_shows_the_problems(folder: Path) -> None:
    (folder / "none.jsonl").write_text("nonsense\n")
    with pytest.raises(DatasetError) as caught:
        await chosen(folder, rows("none.jsonl", skip_bad_rows=True))
    assert [problem.place for problem in caught.value.problems] == ["none.jsonl:1"]


async def test_a_source_of_a_users_own_is_filtered_like_any_other(folder: Path) -> None:
    source = {"use": f"{__name__}:three_tasks", "with": {"repo": "me/x"}}
    dataset = Dataset.model_validate({"source": source, "exclude": ["two"]})
    loaded = await chosen(folder, dataset)
    assert [each.instance_id for each in loaded.instances] == ["one", "three"]
    assert {each.repo for each in loaded.instances} == {"me/x"}


async def test_a_built_in_source_can_be_named_with_its_parameters(folder: Path) -> None:
    source = {"use": "swebench", "with": {"uri": "rows.jsonl", "log_parser": "sympy"}}
    loaded = await chosen(folder, Dataset.model_validate({"source": source}))
    assert tuple(each.instance_id for each in loaded.instances) == IDS
    assert {each.log_parser for each in loaded.instances} == {"sympy"}


async def test_an_unknown_source_and_an_unknown_parameter_name_what_exists(folder: Path) -> None:
    with pytest.raises(ExtensionError, match="did you mean swebench"):
        await chosen(folder, Dataset.model_validate({"source": {"use": "swe_bench"}}))
    source = {"use": f"{__name__}:three_tasks", "with": {"rpo": 1}}
    with pytest.raises(ExtensionError, match="did you mean repo"):
        await chosen(folder, Dataset.model_validate({"source": source}))


async def test_a_source_without_tasks_is_an_error_that_names_it(folder: Path) -> None:
    source = {"use": f"{__name__}:no_tasks"}
    with pytest.raises(DatasetError, match=f"{__name__}:no_tasks has no usable task"):
        await chosen(folder, Dataset.model_validate({"source": source}))


def three_tasks(repo: str) -> Iterator[Instance]:
    for name in ("one", "two", "three"):
        yield Instance(instance_id=name, problem_statement="fix it", image="image:1", repo=repo)


def no_tasks() -> list[Instance]:
    return []


async def test_an_unknown_release_pair_suggests_the_nearest(folder: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        await chosen(folder, Dataset(release_pairs=ReleasePairsDataset(names=("sqlparser",))))
    [problem] = caught.value.problems
    assert "did you mean sqlparse?" in problem.message.lower()
