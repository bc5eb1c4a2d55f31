"""A checked-out repository and an environment make an image, and stay as they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.base import Role, SandboxRequest
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.sandbox.local.checkout import Checkout
from swe_rollout.sandbox.local.environment import Environment, read_environment
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from unit.sandbox.local.checkout_parts import commit, git, make_environment, write

REQUEST = SandboxRequest(EpisodeId("j", "i", 0), Role.GRADER, "official:1", "/testbed")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "own repo"
    folder.mkdir()
    git(folder, "init", "--quiet", "-b", "main")
    return folder


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("env") / "venv", runner=False)


@pytest.fixture
def environment(shared: Path) -> Environment:
    return read_environment(shared)


def made(repo: Path, environment: Environment, base: str | None) -> tuple[Path, list[str]]:
    notes: list[str] = []
    image = repo.parent / "image"
    Checkout(repo, environment, base, notes.append).write(image)
    return image / "tree", [note for note in notes if "editable" not in note]


def commits(tree: Path) -> set[str]:
    found = git(tree, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    return {line.split()[0] for line in found if line.split()[1] == "commit"}


def test_nothing_newer_than_the_base_comes_along(repo: Path, environment: Environment) -> None:
    commit(repo, a="1")
    base = commit(repo, a="2")
    newer = commit(repo, a="3")
    git(repo, "checkout", "--quiet", "--detach", base)
    tree, notes = made(repo, environment, base)
    assert notes == []
    assert git(tree, "rev-parse", "HEAD") == base
    assert newer not in commits(tree)
    assert git(tree, "for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_uncommitted_changes_belong_to_the_base(repo: Path, environment: Environment) -> None:
    base = commit(repo, a="1", gone="x", **{".gitignore": "built\n"})
    write(repo, {"a": "2", "new": "3", "built": "4"})
    (repo / "gone").unlink()
    tree, notes = made(repo, environment, base)
    assert {name: (tree / name).read_text() for name in ("a", "new", "built")} == {
        "a": "2",
        "new": "3",
        "built": "4",
    }
    assert not (tree / "gone").exists()
    assert "uncommitted changes belong to the base: a, gone, new" in notes


def test_a_base_elsewhere_in_the_history_is_brought(repo: Path, environment: Environment) -> None:
    base = commit(repo, a="1")
    commit(repo, a="2")
    head = commit(repo, a="3")
    tree, notes = made(repo, environment, base)
    assert git(tree, "show", f"{base}:a") == "1"
    assert notes == [f"{repo} is at {head[:12]}; its task starts from {base[:12]}"]


def test_a_squashed_history_stands_for_the_base(repo: Path, environment: Environment) -> None:
    commit(repo, a="1")
    commit(repo, a="2")
    tree, notes = made(repo, environment, "0" * 40)
    assert "parent" not in git(tree, "cat-file", "commit", "HEAD")
    assert git(tree, "show", "HEAD:a") == "2"
    assert any("has no commit 000000000000" in note for note in notes)


def test_files_without_git_are_the_base(repo: Path, environment: Environment) -> None:
    write(repo, {"a": "1", ".git/config": ""})
    (repo / ".git" / "HEAD").unlink()
    tree, notes = made(repo, environment, "0" * 40)
    assert git(tree, "show", "HEAD:a") == "1"
    assert any("no git history" in note for note in notes)


def test_a_linked_worktree_and_borrowed_objects_will_do(
    repo: Path, environment: Environment, tmp_path: Path
) -> None:
    base = commit(repo, a="1")
    commit(repo, a="2")
    clone, linked = tmp_path / "clone", tmp_path / "linked"
    git(repo, "clone", "--quiet", "--shared", str(repo), str(clone))
    git(clone, "worktree", "add", "--quiet", "--detach", str(linked), base)
    tree, notes = made(linked, environment, base)
    assert (tree / ".git").is_dir()
    assert not (tree / ".git" / "objects" / "info" / "alternates").exists()
    assert (git(tree, "rev-parse", "HEAD"), notes) == (base, [])


def test_an_environment_inside_is_left_out(repo: Path) -> None:
    base = commit(repo, a="1")
    python = make_environment(repo / ".venv", runner=False)
    tree, _ = made(repo, read_environment(python), base)
    assert not (tree / ".venv").exists()
    assert not Checkout(repo, read_environment(python)).is_installed
    make_environment(repo / ".venv", runner=False, editable=repo / "src")
    assert Checkout(repo, read_environment(python)).is_installed


def test_a_missing_folder_is_refused(tmp_path: Path, environment: Environment) -> None:
    with pytest.raises(PrerequisiteError, match="there is no folder"):
        Checkout(tmp_path / "none", environment).write(tmp_path / "image")


def digest(*folders: Path) -> str:
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                found.update(f"{path}{path.stat().st_mtime_ns}".encode() + path.read_bytes())
    return found.hexdigest()


@pytest.mark.parametrize("isolation", ["bubblewrap", "none"])
async def test_sandboxes_import_their_own_copy_and_change_nothing_here(
    repo: Path, tmp_path: Path, isolation: str
) -> None:
    if isolation == "bubblewrap" and bubblewrap.refusal():
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    commit(repo, src__own__init="", **{"src__own__x.py": "WHO = 'original'\n"})
    python = make_environment(tmp_path / "venv", editable=repo / "src")
    before = digest(repo, tmp_path / "venv")
    provider = LocalProvider(
        LocalSandbox.model_validate({"isolation": isolation}),
        checkout=Checkout(repo, read_environment(python)),
    )
    try:
        sandbox = await provider.start(REQUEST)
        result = await sandbox.exec(
            "set -u; . /opt/miniconda3/bin/activate; conda activate testbed\n"
            "cat .git/HEAD; echo \"WHO = 'copy'\" >src/own/x.py\n"
            'python -c "import own.x; print(own.x.WHO, own.x.__file__)"; pytest --version\n'
            "site=$(python -c 'import pytest; print(pytest.__file__)'); echo broken >$site\n"
            "rm -r .git"
        )
        said = result.stdout.decode()
        assert "refs/heads/main" in said
        assert "copy " in said
        assert "pytest 8" in said or "pytest 9" in said, result.stderr
        assert (result.exit_code, "original" in said) == (0, False)
        if isolation == "bubblewrap":
            assert f"{repo}/src/own/x.py" in said  # as the editable install names it
            there = await sandbox.exec(["cat", "/testbed/src/own/x.py", f"{repo}/src/own/x.py"])
            assert there.stdout == b"WHO = 'copy'\n" * 2
        second = await provider.start(REQUEST)
        assert (await second.exec(["cat", "src/own/x.py"])).stdout == b"WHO = 'original'\n"
    finally:
        await provider.aclose()
    assert digest(repo, tmp_path / "venv") == before


async def test_without_an_editable_install_the_package_is_found_all_the_same(
    repo: Path, environment: Environment
) -> None:
    if bubblewrap.refusal():
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    commit(repo, **{"src__own__x.py": "", "flat.py": ""})
    notes: list[str] = []
    provider = LocalProvider(
        LocalSandbox(), checkout=Checkout(repo, environment, on_note=notes.append)
    )
    try:
        sandbox = await provider.start(REQUEST)
        done = await sandbox.exec(["python", "-c", "import own.x, flat; print(flat.__file__)"])
        assert done.stdout == b"/testbed/flat.py\n"
    finally:
        await provider.aclose()
    assert any("PYTHONPATH" in note for note in notes)
