"""A sandbox's file system: changes stay in it, with overlays and with copies, and end with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap, namespace
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from tree_images import make_tree_image

pytestmark = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs bubblewrap: apt-get install bubblewrap"
)

CHANGES = """\
printf new >kept && rm gone && mv folder moved && mkdir fresh && printf 1 >fresh/one
chmod 755 script
find . -type f | sort | while read -r f; do printf '%s=' "$f"; cat "$f"; echo; done
"""
AFTER = "./fresh/one=1\n./kept=new\n./moved/inside=deep\n./script=run\n"


def an_image(root: Path) -> Path:
    files = {"kept": "old", "gone": "x", "folder/inside": "deep", "script": "run"}
    return make_tree_image("tree:1", root, files)


def content(tree: Path) -> dict[str, str]:
    return {str(p.relative_to(tree)): p.read_text() for p in tree.rglob("*") if p.is_file()}


async def change(root: Path, sample: int) -> str:
    provider = LocalProvider(LocalSandbox(images=str(root), isolation="bubblewrap"))
    try:
        sandbox = await provider.start(
            SandboxRequest(EpisodeId("job", "tree", sample), Role.AGENT, "tree:1", "/testbed")
        )
        result = await sandbox.exec(CHANGES)
        assert (result.exit_code, result.stderr) == (0, b"")
        return result.stdout.decode()
    finally:
        await provider.aclose()


@pytest.mark.parametrize("overlaid", [True, False])
async def test_what_a_sandbox_changes_is_neither_in_the_image_nor_in_the_next_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, overlaid: bool
) -> None:
    if overlaid and not namespace.can_overlay(tmp_path):
        pytest.skip("this machine mounts no overlays: a kernel of 5.11 or newer does")
    if not overlaid:
        monkeypatch.setattr(namespace, "can_overlay", lambda root: False)  # noqa: ARG005
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tree = an_image(tmp_path)
    before = content(tree)

    assert await change(tmp_path, 0) == AFTER
    assert await change(tmp_path, 1) == AFTER
    assert content(tree) == before
    assert not list((tmp_path / "cache").rglob("fresh"))


async def test_a_folder_whose_name_means_something_to_mount_is_an_image_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    odd = tmp_path / "a,b:c"
    an_image(odd)
    assert await change(odd, 0) == AFTER
