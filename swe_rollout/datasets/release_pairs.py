"""The dataset source `release_pairs`: tasks made from two releases of a project.

It needs no account and no image registry, and the tests are real.

The agent gets release N as it was published, tests included. The reference fix is what release N+1
changes in the package's folder; the hidden tests are what it changes in the tests' folder.
"""

from __future__ import annotations

import asyncio
import compileall
import difflib
import py_compile
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from swe_rollout.datasets import archives, testbed
from swe_rollout.datasets.package_index import fetch
from swe_rollout.datasets.release_pair_recipes import SITE, WORKDIR, Pair, load_pairs
from swe_rollout.errors import DatasetError, PrerequisiteError, Problem
from swe_rollout.sandbox.local.images import (
    LocalImage,
    Mount,
    cache_dir,
    image_folder,
    load_image,
    save_image,
)
from swe_rollout.types.instance import Evaluation, Instance

_TEST_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class _Built:
    """The commit and patches of a built image; kept beside the images, never inside one."""

    base_commit: str
    gold_patch: str
    test_patch: str


async def load(
    names: Sequence[str] = (), *, on_progress: Callable[[str], None]
) -> tuple[Instance, ...]:
    """Return the instances of these projects, or of all, with their images on this machine.

    Downloads and builds what is missing; afterwards neither a network nor uv is needed.
    """
    return await prepare_pairs(_choose(names), on_progress=on_progress)


async def prepare_pairs(
    pairs: Sequence[Pair], *, on_progress: Callable[[str], None]
) -> tuple[Instance, ...]:
    """Do the same for pairs that the package does not include."""
    todo = [pair for pair in pairs if _kept(pair) is None]
    await fetch([file for pair in todo for file in pair.artifacts], on_progress=on_progress)
    for pair in todo:
        on_progress(f"building {pair.image}")
        await asyncio.to_thread(_build, pair)
    return tuple(_instance(pair) for pair in pairs)


def _choose(names: Sequence[str]) -> list[Pair]:
    known = load_pairs()
    problems = [
        Problem("releasePairs.names", name, f"no such pair; known: {', '.join(known)}{hint}")
        for name in names
        if name not in known
        for near in [difflib.get_close_matches(name, known, n=1)]
        for hint in [f". Did you mean {near[0]}?" if near else ""]
    ]
    if problems:
        raise DatasetError("these release pairs are not known", problems)
    return [known[name] for name in dict.fromkeys(names or known)]


def _record(pair: Pair) -> Path:
    return cache_dir() / "release-pairs" / f"{pair.project}-{pair.digest}.json"


def _kept(pair: Pair) -> _Built | None:
    """Find an earlier build, if it is still complete."""
    try:
        load_image(pair.image)
        return msgspec.json.decode(_record(pair).read_bytes(), type=_Built)
    except (PrerequisiteError, FileNotFoundError, msgspec.DecodeError):
        return None


def _instance(pair: Pair) -> Instance:
    built = _kept(pair)
    if built is None:
        raise PrerequisiteError(
            f"the image {pair.image} was built but can't be read",
            why=f"another program changes {cache_dir()}, or a file there is damaged",
            fix=f"delete {image_folder(pair.image)} and run it again",
        )
    return Instance(
        instance_id=pair.instance_id,
        source="release_pair",
        repo=pair.project,
        problem_statement=pair.recipe.problem_statement,
        image=pair.image,
        base_commit=built.base_commit,
        workdir=WORKDIR,
        gold_patch=built.gold_patch,
        test_patch=built.test_patch,
        evaluation=Evaluation(commands=(pair.test_command,), timeout_s=_TEST_TIMEOUT_S),
        expected=pair.expected,
    )


def _build(pair: Pair) -> None:
    """Build the image in a scratch folder and move it into place; of concurrent builds one wins."""
    folder = image_folder(pair.image)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch_name:
        scratch = Path(scratch_name)
        image, new = scratch / "image", scratch / "new"
        archives.unpack_sdist(pair.old.path, image / "testbed")
        archives.unpack_sdist(pair.new.path, new)
        for artifact, part in pair.site:
            archives.unpack_dependency(artifact.path, image / "site", folder=part)
        _compile(image / "site")
        built = _Built(
            testbed.make_repository(image / "testbed"),
            testbed.diff(image / "testbed", new, [pair.recipe.source], scratch=scratch),
            testbed.diff(image / "testbed", new, [pair.recipe.tests], scratch=scratch),
        )
        save_image(_image(pair), image)
        _write(_record(pair), msgspec.json.encode(built), scratch=scratch)
        _move(image, folder)


def _compile(site: Path) -> None:
    """Add the bytecode of the dependencies, which a sandbox can read but not write.

    It refers to its sources by hash, because a copy of the image may change the files' times.
    """
    # Some packages contain templates that are not valid Python; they stay as they are.
    compileall.compile_dir(
        site,
        quiet=2,
        stripdir=str(site),
        prependdir=SITE,
        invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
    )


def _image(pair: Pair) -> LocalImage:
    mounts = (
        Mount("testbed", WORKDIR, writable=True),
        Mount("site", SITE, writable=False),
    )
    return LocalImage(pair.image, mounts, pair.environment)


def _write(path: Path, data: bytes, *, scratch: Path) -> None:
    part = scratch / path.name
    part.write_bytes(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(part, path)


def _move(image: Path, folder: Path) -> None:
    try:
        image.rename(folder)
    except OSError:
        # Another process was first (its image is the same), or an incomplete folder is there.
        if not (folder / "image.json").is_file():
            shutil.rmtree(folder)
            image.rename(folder)
