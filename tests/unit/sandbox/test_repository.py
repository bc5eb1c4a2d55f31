"""The git side of a sandbox, on real repositories in real local sandboxes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from swe_rollout.errors import TaskError
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Role, Sandbox, SandboxRequest
from swe_rollout.sandbox.local.provider import LocalProvider
from swe_rollout.spec.sandbox import LocalSandbox
from swe_rollout.types.episode import EpisodeId
from swe_rollout.types.instance import Instance
from tree_images import make_tree_image

AUTHOR = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_COMMITTER_NAME": "a",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
}
EPISODE = EpisodeId("demo", "demo__x-1", 0)
LATIN_1 = "caf\xe9\n".encode("latin-1")


class Image:
    """A local image that holds one repository, made by hand."""

    def __init__(self, root: Path) -> None:
        self.images = root / "images"
        self.repo = make_tree_image("test/repo:1", self.images)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, email: str = "a@localhost") -> str:
        env = os.environ | AUTHOR | {"GIT_COMMITTER_EMAIL": email}
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=self.repo, env=env, check=True, capture_output=True)
        return done.stdout.decode().strip()

    def commit(self, **files: str) -> str:
        for name, text in files.items():
            (self.repo / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=x")
        return self.git("rev-parse", "HEAD")

    def instance(self, base: str | None = None) -> Instance:
        return Instance(
            instance_id="demo__x-1",
            problem_statement="fix",
            image="test/repo:1",
            base_commit=base,
        )

    @asynccontextmanager
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        provider = LocalProvider(LocalSandbox(images=str(self.images), isolation="none"))
        request = SandboxRequest(EPISODE, Role.AGENT, "test/repo:1", "/testbed")
        sandbox = await provider.start(request)
        try:
            yield sandbox
        finally:
            await sandbox.close()
            await provider.aclose()


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Image(tmp_path)


async def run(sandbox: Sandbox, script: str, stdin: bytes = b"") -> str:
    result = await sandbox.exec(f"set -eu\n{script}", stdin=stdin)
    assert result.ok, result
    return result.stdout.decode()


async def test_the_future_is_gone_and_the_past_stays(image: Image) -> None:
    first = image.commit(a="1")
    image.git("tag", "v1")
    base = image.commit(a="2")
    future = image.commit(a="3")
    image.git("tag", "--annotate", "--message=x", "v2")
    image.git("branch", "feature")
    image.git("tag", "blob", "HEAD:a")
    image.git("remote", "add", "origin", str(image.repo))
    image.git("fetch", "--quiet", "origin")
    async with image.sandbox() as sandbox:
        assert await repository.prepare(sandbox, image.instance(base)) == base
        assert await run(sandbox, "cat a") == "2"
        history = await run(sandbox, "git log --all --reflog --format=%H")
        assert set(history.split()) == {base, first}
        assert await run(sandbox, "git tag; git remote") == "v1\n"
        gone = await sandbox.exec(f"git cat-file -e {future} || git cat-file -e {future}^{{tree}}")
        assert not gone.ok


async def test_commits_that_no_ref_names_are_gone_too(image: Image) -> None:
    base = image.commit(a="1")
    future = image.commit(a="2")
    image.git("reset", "--quiet", "--hard", base)
    image.git("reflog", "expire", "--expire=now", "--all")
    async with image.sandbox() as sandbox:
        await repository.prepare(sandbox, image.instance())
        assert not (await sandbox.exec(f"git cat-file -e {future}")).ok


async def test_without_a_base_commit_the_image_is_taken_as_it_is(image: Image) -> None:
    base = image.commit(a="1")
    async with image.sandbox() as sandbox:
        assert await repository.prepare(sandbox, image.instance()) == base
        assert await run(sandbox, "git symbolic-ref --short HEAD") == "main\n"


async def test_what_the_image_adds_to_the_commit_is_no_change_of_the_policy(image: Image) -> None:
    base = image.commit(a="1")
    (image.repo / "a").write_text("patched by the image")
    (image.repo / "built.txt").write_text("left by the build")
    async with image.sandbox() as sandbox:
        prepared = await repository.prepare(sandbox, image.instance(base))
        assert prepared != base
        assert await repository.prepare(sandbox, image.instance(base)) == prepared
        assert (await repository.diff(sandbox, prepared)).text == ""
        await run(sandbox, "echo more >> built.txt")
        assert "built.txt" in (await repository.diff(sandbox, prepared)).text
    async with image.sandbox() as clean:
        assert await repository.prepare(clean, image.instance(base)) == prepared


async def test_a_builders_commit_on_top_of_the_base_is_part_of_the_image(image: Image) -> None:
    base = image.commit(a="1")
    (image.repo / "a").write_text("pinned")
    image.git("add", "--all")
    image.git("commit", "--quiet", "--message=SWE-bench", email="setup@swebench.config")
    async with image.sandbox() as sandbox:
        assert await repository.prepare(sandbox, image.instance(base)) != base
        assert await run(sandbox, "cat a") == "pinned"


async def test_a_folder_without_git_is_the_tasks_fault(image: Image) -> None:
    image.commit(a="1")
    async with image.sandbox() as sandbox:
        await run(sandbox, "rm -rf .git")
        with pytest.raises(TaskError, match="no git repository") as caught:
            await repository.prepare(sandbox, image.instance())
        assert not caught.value.retryable


async def test_an_unknown_base_commit_is_the_tasks_fault(image: Image) -> None:
    image.commit(a="1")
    image.commit(a="2")
    async with image.sandbox() as sandbox:
        with pytest.raises(TaskError, match="base commit is not in the repository"):
            await repository.prepare(sandbox, image.instance("0" * 40))


LATER = {
    "a reflog": "git reset -q --hard {base}",
    "a stash": "git reset -q --hard {base}; git checkout -q {later} -- a; git stash -q",
    "a dropped stash": "git reset -q --hard {base}; git checkout -q {later} -- a; git stash -q;"
    "git stash drop -q",
    "a note": "git reset -q --hard {base}; git notes add -F a {base}; echo later >a;"
    "git notes add -f -F a {base}; git checkout -q -- a",
    "a replacement": "git reset -q --hard {base}; git replace {base} {later}",
    "a tag of a file": "git tag answer {later}:a; git reset -q --hard {base}",
    "a file once staged": "git reset -q --hard {base}; echo later >a; git add a;"
    "git reset -q --hard",
    "a pack": "git gc -q; git reset -q --hard {base}",
    "a worktree": "git worktree add -q ../other {later}; git reset -q --hard {base}",
    "a fetch": "git fetch -q . HEAD; git reset -q --hard {base}",
    "a pick": "git rev-parse HEAD >.git/CHERRY_PICK_HEAD; git reset -q --hard {base};"
    "git rev-parse {later} >.git/CHERRY_PICK_HEAD",
}


@pytest.mark.parametrize("where", LATER)
async def test_what_git_keeps_of_later_history_is_gone(image: Image, where: str) -> None:
    base = image.commit(a="base\n")
    later = image.commit(a="later\n")
    async with image.sandbox() as sandbox:
        committer = {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@localhost"}
        names = (AUTHOR | committer).items()
        author = "export " + " ".join(f"{name}={value}" for name, value in names)
        await run(sandbox, f"{author}; {LATER[where].format(base=base, later=later)}")
        assert await repository.prepare(sandbox, image.instance(base)) == base
        left = await run(
            sandbox,
            "for o in $(git cat-file --batch-all-objects --batch-check='%(objectname)'); do"
            " git cat-file -p $o; done; git status --porcelain; cat a; ls .git",
        )
        assert "later" not in left
        assert "base" in left
        assert "_HEAD" not in left


async def test_borrowed_objects_do_not_lead_to_later_ones(image: Image, tmp_path: Path) -> None:
    base = image.commit(a="base\n")
    later = image.commit(a="later\n")
    image.git("clone", "--quiet", "--bare", str(image.repo), str(tmp_path / "all.git"))
    image.git("reset", "--quiet", "--hard", base)
    image.git("reflog", "expire", "--expire=now", "--all")
    image.git("gc", "--quiet", "--prune=now")
    objects = image.repo / ".git" / "objects"
    (objects / "info" / "alternates").write_text(f"{tmp_path}/all.git/objects\n")
    async with image.sandbox() as sandbox:
        assert await repository.prepare(sandbox, image.instance(base)) == base
        there = await sandbox.exec(["git", "cat-file", "-e", later])
        assert there.exit_code != 0
        assert await run(sandbox, "git show HEAD:a") == "base\n"


async def test_the_only_commit_of_a_squashed_history_is_the_base(image: Image) -> None:
    only = image.commit(a="1")
    async with image.sandbox() as sandbox:
        assert await repository.prepare(sandbox, image.instance("0" * 40)) == only


EDITS = r"""
printf 'one\r\nTWO\nthree' > crlf.txt
git mv moved.py 'to here.py'
head -c 3000 /dev/zero > binary
printf 'caf\351s\n' > latin.txt
printf '\377\n' > "na[x]*ï\"\\y.txt"
rm gone
printf '#!/bin/sh\n' > run.sh && chmod 755 run.sh
chmod 755 crlf.txt
ln -s crlf.txt link
: > empty
mkdir -p deep/er && echo ü > deep/er/ü.txt
git add -A && git commit -qm mine
printf '\nlater' >> crlf.txt
echo x > ignored.log
mkdir __pycache__ && echo x > __pycache__/a.pyc && echo x > b.pyc
"""


async def test_every_kind_of_change_survives_the_diff_bit_for_bit(image: Image) -> None:
    (image.repo / "binary").write_bytes(bytes(range(256)))
    (image.repo / "latin.txt").write_bytes(LATIN_1)
    base = image.commit(
        **{
            "crlf.txt": "one\r\n",
            "moved.py": "".join(f"line {n}\n" for n in range(40)),
            "gone": "x\n",
            ".gitignore": "*.log\n",
        }
    )
    listing = (
        "find . -path ./.git -prune -o -path ./__pycache__ -prune -o ! -name '*.log' "
        "! -name '*.pyc' -type f -exec sh -c 'ls -l \"$1\" | cut -c1-10; sha256sum \"$1\"' _ {} \\;"
        " | sort; readlink link"
    )
    async with image.sandbox() as agents:
        await repository.prepare(agents, image.instance(base))
        await run(agents, EDITS)
        patch = await repository.diff(agents, base)
        wanted = await run(agents, listing)
    assert patch.usable
    assert "rename from moved.py" in patch.text
    assert ".pyc" not in patch.text
    assert "ignored" not in patch.text
    async with image.sandbox() as clean:
        await repository.prepare(clean, image.instance(base))
        await run(clean, "cat > ../p.diff; git apply ../p.diff; rm ../p.diff", patch.text.encode())
        assert await run(clean, listing) == wanted


TRAPS = r"""
echo '* -diff filter=evil' > .gitattributes
git config filter.evil.clean 'touch trapped; cat'
git config core.fsmonitor 'touch trapped'
git config core.hooksPath hooks
git config diff.external 'touch trapped'
git config diff.noprefix true
git config core.excludesFile /dev/null
git config core.attributesFile /dev/null
echo '*' > .git/info/exclude
git update-index --assume-unchanged a
mkdir nested bare && git init -q nested && touch nested/file && git init -q bare
(cd bare && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x)
echo changed > a
echo new > b
rm -f trapped
"""


async def test_what_the_agent_did_to_git_neither_runs_nor_hides_changes(image: Image) -> None:
    base = image.commit(a="1\n")
    async with image.sandbox() as sandbox:
        await repository.prepare(sandbox, image.instance(base))
        await run(sandbox, TRAPS)
        patch = await repository.diff(sandbox, base)
        assert patch.usable, patch.problem
        assert "diff --git a/a b/a\n" in patch.text
        assert "+changed\n" in patch.text
        assert "+new\n" in patch.text
        assert "Subproject" not in patch.text
        assert not (await sandbox.exec("test -e trapped")).ok


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("rm -rf .git", "there is no .git"),
        ("rm -rf .git/objects", "no longer has its base commit"),
        (": > .git/HEAD; find .git/objects -type f -delete", "no longer has its base commit"),
        ("rm -rf .git; git init -q .; git add a", ".git was removed or made anew"),
    ],
)
async def test_a_repository_the_agent_broke_has_no_diff_and_says_why(
    image: Image, damage: str, problem: str
) -> None:
    base = image.commit(a="1")
    async with image.sandbox() as sandbox:
        await repository.prepare(sandbox, image.instance(base))
        await run(sandbox, damage)
        patch = await repository.diff(sandbox, base)
    assert not patch.usable
    assert problem in patch.problem
    assert patch.text == ""


async def test_objects_that_the_agent_borrows_from_elsewhere_are_not_looked_at(
    image: Image,
) -> None:
    base = image.commit(a="1\n")
    async with image.sandbox() as sandbox:
        await repository.prepare(sandbox, image.instance(base))
        await run(
            sandbox,
            "echo 2 > a; far=$(mktemp -d); mkdir $far/pack $far/info .git/objects/info || :;"
            " mkfifo $far/pack/pack-1.idx $far/info/commit-graph .git/objects/info/commit-graph;"
            " echo $far > .git/objects/info/alternates",
        )
        patch = await repository.diff(sandbox, base)
    assert "+2\n" in patch.text


@pytest.mark.parametrize(
    "work", ["git commit -qam mine", "echo junk > .git/index; echo junk > .git/HEAD"]
)
async def test_the_agent_may_commit_or_damage_head_and_index(image: Image, work: str) -> None:
    base = image.commit(a="1\n")
    async with image.sandbox() as sandbox:
        await repository.prepare(sandbox, image.instance(base))
        await run(sandbox, f"echo 2 > a; {work}")
        assert "+2" in (await repository.diff(sandbox, base)).text


async def test_a_diff_beyond_all_measure_is_refused(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = image.commit(a="1")
    monkeypatch.setattr(repository, "MAX_PATCH_BYTES", 1 << 20)
    async with image.sandbox() as sandbox:
        await repository.prepare(sandbox, image.instance(base))
        await run(sandbox, "head -c 1200000 /dev/urandom > big")
        patch = await repository.diff(sandbox, base)
    assert patch.problem == "the diff is larger than 1 MiB"


async def test_hidden_files_are_gone_before_the_base_is_made(image: Image) -> None:
    image.commit(a="1", hidden="tests")
    task = replace(image.instance(), hidden_paths=("hidden", "absent"))
    async with image.sandbox() as sandbox:
        await repository.hide(sandbox, task)
        base = await repository.prepare(sandbox, task)
        assert await run(sandbox, "ls") == "a\n"
        assert (await repository.diff(sandbox, base)).text == ""


BUG = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-right\n+wrong\n"


async def test_a_base_patch_makes_a_base_whose_history_does_not_hold_the_fix(image: Image) -> None:
    image.commit(a="right\n", test="checks a\n")
    task = replace(image.instance(), base_patch=BUG, hidden_paths=("test",), test_files=("test",))
    async with image.sandbox() as sandbox:
        await repository.hide(sandbox, task)
        base = await repository.prepare(sandbox, task)
        assert await run(sandbox, "cat a; ls") == "wrong\na\n"
        assert (await run(sandbox, "git log --all --reflog --format=%H")).split() == [base]
        assert "right" not in await run(
            sandbox,
            "git cat-file --batch-all-objects --batch-check='%(objectname)' | "
            "while read -r id; do git cat-file -p $id; done",
        )
        await run(sandbox, "echo right >a")
        assert "+right" in (await repository.diff(sandbox, base)).text
    async with image.sandbox() as grader:
        again = await repository.prepare(grader, task)
        assert await run(grader, "cat a test") == "wrong\nchecks a\n"
        assert await repository.prepare(grader, image.instance()) == again


async def test_a_base_patch_for_another_image_is_the_tasks_fault(image: Image) -> None:
    image.commit(a="something else\n")
    async with image.sandbox() as sandbox:
        with pytest.raises(TaskError, match="can't be prepared") as caught:
            await repository.prepare(sandbox, replace(image.instance(), base_patch=BUG))
    assert "its base patch does not apply" in caught.value.why


CHANGE = "--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-{}\n+b\n"
RENAME = "diff --git a/{0} b/d.py\nsimilarity index 100%\nrename from {0}\nrename to d.py\n"


@pytest.mark.threat(point=4)
@pytest.mark.parametrize(
    ("fix", "refusal"),
    [
        ("", ""),
        (CHANGE.format("x"), ""),
        (CHANGE.format("a"), "patch failed: calc.py:1"),
        (CHANGE.format("a").replace("calc", "other"), "none of the files that it changes is here"),
        (RENAME.format("calc.py"), ""),
        (RENAME.format("other.py"), "other.py: No such file or directory"),
        ("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+b\n", ""),
        ("not a diff", "No valid patches in input"),
    ],
)
async def test_a_fix_that_does_not_apply_is_refused_and_leaves_nothing(
    image: Image, fix: str, refusal: str
) -> None:
    image.commit(**{"calc.py": "x\n"})
    instance = replace(image.instance(), gold_patch=fix)
    async with image.sandbox() as sandbox:
        await repository.prepare(sandbox, instance)
        listing = "ls -lR; git count-objects; git status --short"
        before = await sandbox.exec(listing)
        if refusal:
            with pytest.raises(TaskError, match="does not apply to the repository") as refused:
                await repository.require_fix(sandbox, instance)
            assert refusal in refused.value.why
            assert not refused.value.retryable
        else:
            await repository.require_fix(sandbox, instance)
        after = await sandbox.exec(listing)
    assert after.stdout == before.stdout
