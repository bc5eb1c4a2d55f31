"""Folders in a sandbox: what an agent has changed there, and the same changes in a clean one."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harbor_parts import make_image
from swe_rollout.errors import TaskError
from swe_rollout.sandbox import delta, folders
from swe_rollout.sandbox.base import ExecResult, Sandbox
from swe_rollout.sandbox.local import bubblewrap
from swe_rollout.spec.sandbox import LocalSandbox, SandboxSpec
from swe_rollout.types.instance import FolderTask, TaskFile
from swe_rollout.worker.standalone import Wanted, open_sandbox

needs_namespaces = pytest.mark.skipif(
    bool(bubblewrap.refusal()), reason="needs `apt-get install bubblewrap`"
)
TASK = FolderTask(
    kept=("/app", "/srv/report"),
    start=(TaskFile("/app/laid out", base64.b64encode(b"x").decode()),),
)
LISTING = "LC_ALL=C; cd /; find app srv -exec ls -ldn --time-style=+ {} +; cat app/t* app/new/*"


@pytest.fixture
def spec(tmp_path: Path) -> SandboxSpec:
    held = tmp_path / "held"
    (held / "deep" / "folder").mkdir(parents=True)
    for name in ("text", "gone", "deep/folder/gone", "become-link", "become-folder", "kept"):
        (held / name).write_text(f"{name}\n")
    (held / "become-file").mkdir()
    (held / "link").symlink_to("text")
    make_image(tmp_path / "images", "folders:1", copies={"/app": held})
    return SandboxSpec(local=LocalSandbox(images=str(tmp_path / "images")))


@pytest.fixture
async def sandbox(spec: SandboxSpec) -> AsyncIterator[Sandbox]:
    async with open_sandbox(spec, Wanted("folders:1", "/app")) as sandbox:
        yield sandbox


async def changes(sandbox: Sandbox, script: str, task: FolderTask = TASK) -> str:
    """Run a script as an agent does, and return the delta."""
    base = await folders.prepare(sandbox, task)
    result = await sandbox.exec(script)
    assert result.ok, result.stderr
    found = await folders.diff(sandbox, base)
    assert found.usable, found
    return found.text


@needs_namespaces
class TestFolders:
    async def test_doing_nothing_changes_nothing(self, sandbox: Sandbox) -> None:
        assert await changes(sandbox, "ls; cat text; mkdir /app/__pycache__; >x.pyc") == ""

    async def test_all_kinds_of_changes_arrive_in_a_clean_sandbox(
        self, sandbox: Sandbox, spec: SandboxSpec
    ) -> None:
        script = """
            echo more >>text; chmod +x kept; rm gone; rm -r deep/folder; ln -sf kept link
            rm become-link become-folder; rmdir become-file
            ln -s /etc/passwd become-link; mkdir become-folder; echo x >become-folder/x
            echo file >become-file
            mkdir -p new empty/er "odd \t\n'\\"é"; printf 'no end' >new/one
            head -c 3000 /dev/urandom >new/binary; >new/empty; : >"odd \t\n'\\"é/\\$x"
            printf 'x' >"$(printf 'new/\\377')"; ln -s 'to a\nline' new/away
            mkfifo pipe; echo report >/srv/report; echo lost >/srv/lost; echo lost >/root/lost
        """
        text = await changes(sandbox, script)
        text.encode()
        async with open_sandbox(spec, Wanted("folders:1", "/app")) as clean:
            await folders.prepare(clean, TASK)
            assert await folders.apply(clean, delta.parse(text), TASK) == ""
            await sandbox.exec("rm pipe /srv/lost")
            expected, found = [(await each.exec(LISTING)).stdout for each in (sandbox, clean)]
        assert sorted(found.split(b"\n")) == sorted(expected.split(b"\n"))

    async def test_a_change_that_hides_its_time_is_seen(self, sandbox: Sandbox) -> None:
        text = await changes(
            sandbox, "touch -r text /tmp/t; printf TEXT >text; touch -r /tmp/t text"
        )
        assert "+TEXT" in text

    async def test_a_change_in_the_first_second_is_seen(self, sandbox: Sandbox) -> None:
        await sandbox.exec("printf 1 >fresh")
        assert "+2" in await changes(sandbox, "printf 2 >fresh")

    async def test_a_file_that_was_replaced_by_its_like_is_taken(self, sandbox: Sandbox) -> None:
        assert "+text" in await changes(sandbox, "cp -p text t && mv t text")

    async def test_what_still_runs_is_ended_first(self, sandbox: Sandbox) -> None:
        script = "(while :; do date +%N >beat; done) >/dev/null 2>&1 & sleep 0.2"
        assert "app/beat" in await changes(sandbox, script)

    async def test_tests_and_solutions_of_an_image_are_removed(self, sandbox: Sandbox) -> None:
        await sandbox.exec("echo 1 >/tests/test.sh; echo 1 >/solution/solve.sh")
        await folders.prepare(sandbox, TASK)
        assert (await sandbox.exec("cat /tests/* /solution/* 'laid out'")).stdout == b"x"

    async def test_too_much_is_a_problem_of_the_policy(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        base = await folders.prepare(sandbox, TASK)
        await sandbox.exec("truncate -s 17M large")
        found = await folders.diff(sandbox, base)
        assert "17 MiB" in found.problem
        await sandbox.exec("rm large; seq 9 | while read n; do >$n; done")
        monkeypatch.setattr(folders, "_MOST_CHANGED", 8)
        assert not (await folders.diff(sandbox, base)).usable

    async def test_programs_that_lie_are_a_problem_of_the_policy(self, sandbox: Sandbox) -> None:
        base = await folders.prepare(sandbox, TASK)
        for output in ("", "x", "x\ny\nz", "1\nffff 1 1 1 1 relative\n", "1\n81a4 9 1 1 1 /etc\n"):
            checked = sandbox.exec

            async def lie(*_: object, text: str = output, **__: object) -> ExecResult:
                return ExecResult(0, text.encode(), b"")

            sandbox.exec = lie  # type: ignore[method-assign]
            found = await folders.diff(sandbox, base)
            sandbox.exec = checked  # type: ignore[method-assign]
            if found.usable:
                refusal = await folders.apply(sandbox, delta.parse(found.text), TASK)
                assert refusal or "new file" not in found.text

    async def test_an_image_without_find_is_refused(self, sandbox: Sandbox) -> None:
        checked = sandbox.exec

        async def without(command: object, **options: object) -> ExecResult:
            if "find" in str(command) and "stat" in str(command):
                return ExecResult(127, b"", b"find: not found")
            return await checked(command, **options)  # type: ignore[arg-type]

        sandbox.exec = without  # type: ignore[method-assign]
        with pytest.raises(TaskError, match="can't be listed"):
            await folders.prepare(sandbox, TASK)
