"""Copies of a fix in an image, and what a build left of it, are found by what only the fix has."""

from __future__ import annotations

import py_compile
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swe_rollout.grading import leftovers
from swe_rollout.grading.grader import Grader
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from unit.sandbox.local.checkout_parts import commit, git

BASE = "def area(width, height):\n    return width + height\n"
FIXED = """\
def area(width, height):
    if width < 0 or height < 0:
        raise NegativeExtentError("a side of a rectangle is never negative")
    return multiply_extents(width, height)
"""
NEEDS_NAMESPACES = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs `apt-get install bubblewrap`"
)

pytestmark = pytest.mark.threat(point=3)


class Place:
    """An image with a repository at its base, and a folder beside it."""

    def __init__(self, root: Path, path: str, base: str, fixed: str) -> None:
        self.folder = image_folder("shapes:1")
        self.repo = self.folder / "testbed"
        self.opt = self.folder / "opt"
        self.repo.mkdir(parents=True)
        self.opt.mkdir()
        self.root = root
        git(self.repo, "init", "--quiet", "-b", "main")
        files = {path.replace("/", "__"): base, ".gitignore": "build\n*.pyc\n"}
        self.base = commit(self.repo, **files)
        (self.repo / path).write_text(fixed)
        self.gold = git(self.repo, "diff") + "\n"
        git(self.repo, "checkout", "--quiet", "--", ".")

    def write(self, path: str, data: str | bytes) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)

    async def found(self) -> tuple[str, ...]:
        mounts = (Mount("testbed", "/testbed", writable=True), Mount("opt", "/opt", writable=False))
        save_image(LocalImage("shapes:1", mounts, {}), self.folder)
        task = Instance(
            instance_id="shapes-1",
            problem_statement="areas",
            image="shapes:1",
            repo="owner/shapes",
            base_commit=self.base,
            gold_patch=self.gold,
        )
        provider = LocalProvider(LocalSandbox())
        try:
            return await Grader(provider).find_copies(task, episode=EpisodeId("j", "shapes-1", 0))
        finally:
            await provider.aclose()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Place(tmp_path, "src/shapes.py", BASE, FIXED)


@pytest.fixture
def plane(place: Place, tmp_path: Path) -> Place:
    shutil.rmtree(place.folder)
    return Place(tmp_path, "src/shapes/plane.py", PLANE, FIXED_PLANE)


PLANE = "def area(w, h):\n    return w + h\n\n\ndef name():\n    return 'shape'\n"
FIXED_PLANE = PLANE.replace("    return w + h\n", "    check(w, h)\n    return w * h\n")
LATER = FIXED_PLANE + "\n\ndef volume(w, h, d):\n    return area(w, h) * d\n"


@NEEDS_NAMESPACES
@pytest.mark.parametrize("text", [FIXED_PLANE, LATER])
@pytest.mark.parametrize(
    "path",
    [
        "opt/lib/python3.9/site-packages/shapes/plane.py",
        "opt/tool/_vendor/shapes/plane.py",
        "testbed/build/lib/shapes/plane.py",
    ],
)
async def test_a_fixed_file_is_found_wherever_it_lies(plane: Place, path: str, text: str) -> None:
    plane.write(path, text)
    assert await plane.found() == (f"/{path}",)


@NEEDS_NAMESPACES
async def test_archives_and_code_without_source_are_copies_and_older_files_are_not(
    plane: Place,
) -> None:
    for path, text in {
        "opt/cache/shapes-2.0-py3-none-any.whl": "",
        "opt/cache/shapes-2.0.tar.gz": "",
        "opt/cache/reshapes-2.0.tar.gz": "",
        "opt/gone/shapes/__pycache__/plane.cpython-39.pyc": "",
        "opt/site/shapes/plane.py": PLANE,
        "opt/site/shapes/__pycache__/plane.cpython-39.pyc": "",
        "opt/older/shapes/plane.py": PLANE.replace("'shape'", "'form'"),
        "opt/other/shapes/plane.py": "import os\n\ncheck(w, h)\n",
        "opt/fixed/shapes/solid.py": FIXED_PLANE,
    }.items():
        plane.write(path, text)
    assert await plane.found() == (
        "/opt/cache/shapes-2.0-py3-none-any.whl",
        "/opt/cache/shapes-2.0.tar.gz",
        "/opt/gone/shapes/__pycache__/plane.cpython-39.pyc",
    )


@NEEDS_NAMESPACES
async def test_a_fix_that_only_takes_away_is_found_too(place: Place, tmp_path: Path) -> None:
    shutil.rmtree(place.folder)
    less = PLANE.replace("    return w + h\n", "")
    found = Place(tmp_path, "src/shapes/plane.py", PLANE, less)
    found.write("opt/site/shapes/plane.py", less)
    found.write("opt/older/shapes/plane.py", PLANE)
    assert await found.found() == ("/opt/site/shapes/plane.py",)


@NEEDS_NAMESPACES
@pytest.mark.parametrize(
    "path",
    [
        "testbed/build/lib/other_name.py",
        "testbed/src/shapes.py.orig",
        "testbed/src/shapes.py.rej",
        "testbed/src/shapes.py~",
        "testbed/src/.shapes.py.swp",
        "testbed/src/shapes.py.bak",
        "opt/cache/0a1b2c.py",
        "opt/notes/answer.patch",
    ],
)
async def test_a_leftover_is_found_by_its_lines(place: Place, path: str) -> None:
    text = place.gold if path.endswith((".rej", ".patch")) else FIXED
    place.write(path, text)
    assert await place.found() == (f"/{path}",)


@NEEDS_NAMESPACES
async def test_a_clean_image_has_none(place: Place) -> None:
    place.write("testbed/build/lib/shapes.py", BASE)
    place.write("testbed/src/shapes.py.orig", BASE)
    place.write("opt/site-packages/areas.py", "def area(width, height):\n    return width\n")
    place.write("opt/site-packages/shapes-1.0.dist-info/METADATA", "Name: shapes\nVersion: 1.0\n")
    git(place.opt, "clone", "-q", "--bare", str(place.repo), "x.git")
    assert await place.found() == ()


@NEEDS_NAMESPACES
async def test_bytecode_of_the_fix_beside_the_bases_source_is_found(place: Place) -> None:
    fixed = place.root / "fixed.py"
    fixed.write_text(FIXED)
    for name, source in (("shapes", FIXED), ("other", BASE)):
        fixed.write_text(source)
        target = place.repo / "src" / "__pycache__" / f"{name}.cpython-311.pyc"
        py_compile.compile(str(fixed), cfile=str(target), doraise=True)
    (place.repo / "src" / "other.py").write_text(BASE)
    assert await place.found() == ("/testbed/src/__pycache__/shapes.cpython-311.pyc",)


@NEEDS_NAMESPACES
async def test_another_clone_with_later_commits_and_a_bundle_are_found(place: Place) -> None:
    clone = place.opt / "src" / "shapes"
    git(place.opt, "clone", "-q", str(place.repo), str(clone))
    commit(clone, x="2")
    git(clone, "bundle", "create", "-q", str(place.opt / "all.bundle"), "--all")
    assert await place.found() == ("/opt/all.bundle", "/opt/src/shapes/.git")


@NEEDS_NAMESPACES
async def test_a_later_version_beside_an_earlier_one_is_found(place: Place) -> None:
    for version in ("1.2.0.dev3", "1.10"):
        info = f"opt/site-packages/Shapes-{version}.dist-info/METADATA"
        place.write(info, f"Name: Shapes\nVersion: {version}\n")
    place.write("testbed/shapes.egg-info/PKG-INFO", "Name: shapes\nVersion: 1.2.0\n")
    assert await place.found() == ("/opt/site-packages/Shapes-1.10.dist-info/METADATA",)


@NEEDS_NAMESPACES
async def test_a_packed_object_that_no_commit_needs_is_found(place: Place) -> None:
    (place.repo / "lost").write_text(FIXED)
    blob = git(place.repo, "hash-object", "-w", "lost")
    (place.repo / "lost").unlink()
    (place.root / "packed").write_text(f"{blob}\n")
    git(place.repo, "pack-objects", "-q", ".git/objects/pack/pack", stdin=place.root / "packed")
    assert await place.found() == (f"git object {blob}",)


def test_generic_lines_and_those_of_the_base_tell_nothing() -> None:
    lines = ["return None", "import os, sys, re", "value = compute_extent(width)", "x" * 500, "})"]
    known = {"value = known_already(width)"}
    assert leftovers.distinctive([*lines, *known], known) == ("value = compute_extent(width)",)


@given(st.lists(st.text(max_size=60), max_size=80), st.lists(st.text(max_size=60), max_size=20))
def test_the_number_of_lines_is_bounded_and_none_is_the_bases(
    added: list[str], known: list[str]
) -> None:
    found = leftovers.distinctive(added, set(known))
    assert len(found) <= 40
    assert not set(found) & set(known)
    assert not leftovers.holds("\n".join(known), found)


@pytest.mark.parametrize(
    ("earlier", "later"), [("1.9", "1.10"), ("2.0.0.dev5", "2.0.1"), ("1!1.0", "1!2.0")]
)
def test_versions_are_compared_by_their_numbers(earlier: str, later: str) -> None:
    numbers = leftovers._numbers
    assert numbers(earlier) < numbers(later)
