"""Images are pulled from where a job says, by tag or by digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swe_rollout.datasets import base
from swe_rollout.datasets.images import ImageRules, full_name
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.spec.dataset import Dataset, Images, SwebenchDataset
from swe_rollout.types.instance import Instance
from unit.datasets.row_parts import GOOD, lines

DIGEST = "sha256:" + "a" * 64
OFFICIAL = "swebench/sweb.eval.x86_64.pallets_1776_flask-5014:latest"


def pulled(image: str, rules: ImageRules) -> str:
    task = Instance(instance_id="a", problem_statement="x", image=image)
    result = rules.applied(task)
    return result.image if isinstance(result, Instance) else str(result)


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("swebench/a:1", "docker.io/swebench/a:1"),
        ("ghcr.io/a/b", "ghcr.io/a/b:latest"),
        ("localhost/a:2", "localhost/a:2"),
        ("registry:5000/a", "registry:5000/a:latest"),
        (f"a/b@{DIGEST}", f"docker.io/a/b@{DIGEST}"),
    ],
)
def test_a_name_is_completed(image: str, full: str) -> None:
    assert full_name(image) == full


def test_a_registry_takes_the_place_of_each_images_own() -> None:
    rules = ImageRules(registry="mirror.example/hub")
    assert pulled("swebench/a:1", rules) == "mirror.example/hub/swebench/a:1"
    assert pulled("docker.io/a/b:1", rules) == "mirror.example/hub/a/b:1"
    assert pulled("python", rules) == "mirror.example/hub/library/python:latest"


def test_the_longest_beginning_is_rewritten_and_the_registry_left_out() -> None:
    rewrite = {
        "swebench/": "m.example/",
        "swebench/sweb.eval.": "m.example/swe/",
        "docker.io/": "d/",
    }
    rules = ImageRules(rewrite, registry="mirror.example")
    assert pulled("swebench/sweb.eval.x:1", rules) == "m.example/swe/x:1"
    assert pulled("other/x:1", rules) == "d/other/x:1"
    assert pulled("ghcr.io/x/y:1", rules) == "mirror.example/x/y:1"


def test_images_are_pulled_by_digest_and_one_without_is_refused() -> None:
    rules = ImageRules(registry="m.example", digests={"docker.io/swebench/a:latest": DIGEST})
    assert pulled("swebench/a", rules) == f"m.example/swebench/a@{DIGEST}"
    assert pulled(f"swebench/b@{DIGEST}", rules) == f"m.example/swebench/b@{DIGEST}"
    assert "swebench/b is not in the file of digests" in pulled("swebench/b", rules)


async def loaded(folder: Path, images: Images, *, skip: bool = False) -> base.LoadedDataset:
    (folder / "rows.jsonl").write_bytes(lines(GOOD))
    dataset = Dataset(swebench=SwebenchDataset(uri="rows.jsonl"), images=images, skip_bad_rows=skip)
    return await base.load(dataset, base_dir=folder, on_progress=lambda _: None)


async def test_a_job_pins_its_images(tmp_path: Path) -> None:
    (tmp_path / "pins.json").write_text(json.dumps({OFFICIAL: DIGEST}))
    found = await loaded(tmp_path, Images(digests="pins.json"))
    assert found.instances[0].image == f"{OFFICIAL.removesuffix(':latest')}@{DIGEST}"


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ("[", "invalid JSON"),
        ("[]", "expected an object of image to digest"),
        (json.dumps({"a": "latest"}), "a: expected `sha256:` and 64"),
    ],
)
async def test_a_bad_file_of_digests_is_named(tmp_path: Path, pins: str, message: str) -> None:
    (tmp_path / "pins.json").write_text(pins)
    with pytest.raises(DatasetError) as caught:
        await loaded(tmp_path, Images(digests="pins.json"))
    assert message in str(caught.value.problems[0])


async def test_an_image_without_a_digest_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "pins.json").write_text("{}")
    with pytest.raises(DatasetError) as caught:
        await loaded(tmp_path, Images(digests="pins.json"))
    (problem,) = caught.value.problems
    assert isinstance(problem, Problem)
    assert "pallets__flask-5014" in str(problem)
