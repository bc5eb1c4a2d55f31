"""Copies of a fix in an image are found by content, wherever they lie; older copies are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.grading.copies import find_copies
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.images import LocalImage, Mount, image_folder, save_image
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance

pytestmark = [
    pytest.mark.threat(point=3),
    pytest.mark.skipif(bool(bubblewrap.refusal()), reason="needs `apt-get install bubblewrap`"),
]
BASE = "def area(w, h):\n    return w + h\n\n\ndef name():\n    return 'shape'\n"
FIXED = BASE.replace("    return w + h\n", "    check(w, h)\n    return w * h\n")
LATER = FIXED + "\n\ndef volume(w, h, d):\n    return area(w, h) * d\n"
OTHER = "import os\n\ncheck(w, h)\n"
GOLD = """\
diff --git a/src/shapes/plane.py b/src/shapes/plane.py
--- a/src/shapes/plane.py
+++ b/src/shapes/plane.py
@@ -1,2 +1,3 @@
 def area(w, h):
-    return w + h
+    check(w, h)
+    return w * h
"""
TASK = Instance(
    instance_id="shapes-2",
    problem_statement="areas",
    image="shapes:1",
    workdir="/testbed",
    repo="owner/shapes",
    gold_patch=GOLD,
)


class Search:
    async def __call__(self, files: dict[str, str], task: Instance = TASK) -> tuple[str, ...]:
        folder = image_folder(task.image)
        for path, text in ({"testbed/src/shapes/plane.py": BASE} | files).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        (folder / "opt").mkdir(exist_ok=True)
        mounts = (Mount("testbed", "/testbed", writable=True), Mount("opt", "/opt", writable=False))
        save_image(LocalImage(task.image, mounts, {}), folder)
        provider = LocalProvider(LocalSandbox())
        try:
            request = SandboxRequest(
                EpisodeId("job", "one", 0), Role.GRADER, task.image, task.workdir
            )
            return await find_copies(await provider.start(request), task)
        finally:
            await provider.aclose()


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Search()


@pytest.mark.parametrize("text", [FIXED, LATER])
@pytest.mark.parametrize(
    "path",
    [
        "opt/lib/python3.9/site-packages/shapes/plane.py",
        "opt/tool/_vendor/shapes/plane.py",
        "testbed/build/lib/shapes/plane.py",
    ],
)
async def test_a_fixed_file_is_found_wherever_it_lies(find: Search, path: str, text: str) -> None:
    assert await find({path: text}) == (f"/{path}",)


async def test_the_base_and_unrelated_files_are_no_copies(find: Search) -> None:
    files = {
        "opt/site/shapes/plane.py": BASE,
        "opt/older/shapes/plane.py": BASE.replace("'shape'", "'form'"),
        "opt/other/shapes/plane.py": OTHER,
        "opt/fixed/shapes/solid.py": FIXED,
    }
    assert await find(files) == ()


async def test_archives_and_code_without_source_are_reported(find: Search) -> None:
    files = {
        "opt/cache/shapes-2.0-py3-none-any.whl": "",
        "opt/cache/shapes-2.0.tar.gz": "",
        "opt/cache/reshapes-2.0.tar.gz": "",
        "opt/gone/shapes/__pycache__/plane.cpython-39.pyc": "",
        "opt/site/shapes/plane.py": BASE,
        "opt/site/shapes/__pycache__/plane.cpython-39.pyc": "",
    }
    assert await find(files) == (
        "/opt/cache/shapes-2.0-py3-none-any.whl",
        "/opt/cache/shapes-2.0.tar.gz",
        "/opt/gone/shapes/__pycache__/plane.cpython-39.pyc",
    )


async def test_a_fix_that_only_takes_away_is_found_too(find: Search) -> None:
    gold = GOLD.replace("+    check(w, h)\n+    return w * h\n", "").replace("+1,3", "+1,1")
    task = Instance(
        **{field: getattr(TASK, field) for field in TASK.__slots__} | {"gold_patch": gold}
    )
    less = BASE.replace("    return w + h\n", "")
    assert await find({"opt/site/shapes/plane.py": less}, task) == ("/opt/site/shapes/plane.py",)
    assert await find({"opt/site/shapes/plane.py": BASE}, task) == ()
