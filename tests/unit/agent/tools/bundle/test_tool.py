"""Programs of a bundle, called in a real sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swe_rollout.agent.tools import load_tool, toolbox
from swe_rollout.agent.tools.base import ToolContext
from swe_rollout.agent.tools.bundle.archive import pack, register
from swe_rollout.agent.tools.bundle.tool import bundle_tools
from swe_rollout.errors import SandboxError
from swe_rollout.extension import ExtensionError
from swe_rollout.sandbox import repository
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.spec.agent import ToolUse
from swe_rollout.testing.extensions.tools import MemorySandbox
from unit.agent.tools.bundle.bundle_parts import bundle_of, folder, tool_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONTEXT = ToolContext(20.0, 16384)
ECHO = "#!/bin/sh\ncat\n"
WHERE = '#!/bin/sh\nprintf %s "$0"\n'


async def test_wa11_arguments_are_json_on_stdin_and_no_shell_reads_them(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    echo = tool_of(tmp_path, ECHO)
    text = "--help $(touch pwned) `touch pwned` '; touch pwned #\n\0é漢"

    seen = await echo.run({"text": text, "--": ["-x"]}, sandbox, CONTEXT)

    shown = seen.text.removeprefix("exit code: 0\nstdout:\n")
    assert json.loads(shown) == {"text": text, "--": ["-x"]}
    assert not (Path(sandbox.workdir) / "pwned").exists()


async def test_a_program_runs_in_the_repository_until_its_time_is_over(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    tool = tool_of(tmp_path, "#!/bin/sh\npwd\necho err >&2\nexec sleep 600\n")

    seen = await tool.run({}, sandbox, ToolContext(1.0, 16384))

    assert seen.timed_out
    assert seen.text.startswith("killed after 1 s")
    assert f"\nstdout:\n{sandbox.workdir}\nstderr:\nerr" in seen.text


async def test_the_bundle_is_uploaded_once_and_before_the_first_call(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    made = folder(tmp_path, where=WHERE, other=WHERE)
    (made / "words.txt").write_text("a word")
    where, other = bundle_tools(bundle_of(made))

    seen = await asyncio.gather(*(tool.run({}, sandbox, CONTEXT) for tool in [where, other] * 4))

    homes = {each.text.splitlines()[-1].rpartition("/")[0] for each in seen}
    assert len(homes) == 1
    found = await sandbox.exec(["ls", homes.pop()])
    assert found.stdout == b"other\nwhere\nwords.txt\n"


async def test_the_bundle_is_in_no_diff_wherever_the_repository_is(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    # The repository holds the folder for temporary files, as one at / does.
    git = "git init -q . && git -c user.name=a -c user.email=a@b commit -qm one --allow-empty"
    await sandbox.exec("cd .. && " + git)
    base = await sandbox.exec("cd .. && git rev-parse HEAD")
    seen = await tool_of(tmp_path, WHERE).run({}, sandbox, CONTEXT)
    home = seen.text.splitlines()[-1].rpartition("/")[0]
    assert Path(home).is_relative_to(Path(sandbox.workdir).parent), "the test needs it inside"
    await sandbox.write_file("new.py", b"x = 1\n")

    patch = await repository.diff(sandbox, base.stdout.decode().strip())

    await sandbox.exec("rm -rf ../.git")
    assert patch.usable
    assert "new.py" in patch.text
    assert "swe-rollout-tools" not in patch.text
    assert "#!/bin/sh" not in patch.text


async def test_a_policy_that_rewrites_the_bundle_changes_its_own_sandbox_alone(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    tool = tool_of(tmp_path, WHERE)
    seen = await tool.run({}, sandbox, CONTEXT)
    program = seen.text.splitlines()[-1]
    await sandbox.exec(f"printf '#!/bin/sh\\necho forged\\n' >{program}")
    assert (await tool.run({}, sandbox, CONTEXT)).text.endswith("forged")

    await sandbox.exec(["rm", "-r", program.rpartition("/")[0]])
    gone = await tool.run({}, sandbox, CONTEXT)
    assert gone.exit_code == 127


async def test_a_sandbox_without_a_place_for_programs_is_an_observation(tmp_path: Path) -> None:
    seen = await tool_of(tmp_path, ECHO).run({}, MemorySandbox({}, b"ok\n"), CONTEXT)

    assert seen.text == "error: the sandbox has no folder left in which tools can be run"


async def test_a_full_disk_is_an_observation_and_a_lost_sandbox_is_not(tmp_path: Path) -> None:
    class Full(MemorySandbox):
        async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
            del data, mode
            raise OSError(28, "No space left on device", path)

    tool = tool_of(tmp_path, ECHO)

    seen = await tool.run({}, Full({}, b"/tmp/x\n"), CONTEXT)
    assert seen.text == "error: the tool can't be installed: No space left on device"
    with pytest.raises(SandboxError):
        await tool.run({}, MemorySandbox({}, lost=True), CONTEXT)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(), max_size=200))
async def test_any_text_arrives_as_one_line(
    sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    tool = tool_of(tmp_path_factory.mktemp("bundle"), "#!/bin/sh\nhead -n 1\n")

    seen = await tool.run({"text": text}, sandbox, CONTEXT)

    whole = text.encode(errors="replace").decode()
    assert json.loads(seen.text.removeprefix("exit code: 0\nstdout:\n")) == {"text": whole}


async def test_a_job_names_the_bundle_that_travelled_with_it(tmp_path: Path) -> None:
    data = pack(folder(tmp_path, one=ECHO, two=ECHO))
    use = ToolUse.model_validate(
        {"use": "bundle", "with": {"path": "x", "sha256": hashlib.sha256(data).hexdigest()}}
    )
    with pytest.raises(ExtensionError, match="the bundle x did not travel") as refused:
        toolbox([use])
    assert "swe-rollout run" in refused.value.fix
    register(data)

    assert [spec.name for spec in toolbox(["bash", use]).specs] == ["bash", "one", "two"]
    with pytest.raises(ExtensionError, match="toolset of 2 tools"):
        load_tool(use)
    with pytest.raises(ExtensionError, match="there are two tools named one"):
        toolbox([use, use])
