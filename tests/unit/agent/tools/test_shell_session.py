"""A session of `bash`: what carries over, what ends one call alone, and what is told (row WT1)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from busybox import BusyboxSandbox
from swe_rollout.agent.tools.shell_session import MAX_STATE_BYTES, ShellSession
from swe_rollout.agent.tools.state import ToolState
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation
from unit.agent.tools.conftest import use, used

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
]
SESSION = used("bash", session=True)


class Episode:
    """The calls of one episode."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._state = ToolState()

    async def see(
        self, command: str, *, timeout_s: float = 20.0, restart: bool = False
    ) -> Observation:
        arguments = {"command": command, **({"restart": True} if restart else {})}
        return await use(self._sandbox, SESSION, arguments, timeout_s=timeout_s, state=self._state)

    async def out(self, command: str) -> str:
        """What a command that succeeds in silence about all else writes."""
        seen = await self.see(command)
        assert seen.exit_code == 0, seen.text
        assert "stderr:" not in seen.text
        return seen.text.partition("stdout:\n")[2]


@pytest.fixture
def episode(sandbox: Sandbox) -> Episode:
    return Episode(sandbox)


POSIX = [
    ("mkdir -p 'a b' && cd 'a b'", 'basename "$PWD"; pwd | tail -c 4', "a b\na b"),
    ("cd /; cd /usr", "cd - && pwd", "/\n/"),
    ("X='a b\nc\"$y`z'", 'printf %s "$X"', 'a b\nc"$y`z'),
    ("export X=1; Y=2", "sh -c 'echo $X ${Y-none}'; echo $Y", "1 none\n2"),
    ("readonly R=1; set -f", 'echo $R "$-" | tr -dc 1f', "1f"),
    ("X=1; set -e; false; X=2", "set +e; echo $X", "1"),
    ("exit 0", "echo on", "on"),
    ("X=1; (exit 3)", "echo $X", "1"),
    ("trap 'echo bye' EXIT; X=1", "echo $X", "1"),
    ("for i in 1 2; do VAR=$i; done", "echo $VAR", "2"),
    ("IFS=,", 'x=a,b; for i in $x; do echo "$i"; done', "a\nb"),
]
"""What a command does, the next one, and what that prints: in every shell."""


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        *POSIX,
        ("unset HOME", "echo ${HOME-none}; sh -c 'echo ${HOME-none}'", "none\nnone"),
        ('f() { echo "$1 f"; }; export -f f', "f a; bash -c 'f b'", "a f\nb f"),
        ("a=(1 '2 3'); declare -A m=([k]='v w')", 'echo "${a[1]}" "${m[k]}"', "2 3 v w"),
        ("readonly R=1; declare -i n=3", "n+=4; echo $R $n", "1 7"),
        ("shopt -s extglob expand_aliases; alias hi='echo hi'", "hi; case aa in +(a)) echo y; esac",
         "hi\ny"),
        ("set -o pipefail; umask 077", "set -o | grep pipefail | tr -d ' \t'; umask",
         "pipefailon\n0077"),
        ("IFS=,", 'printf %q "$IFS"', "\\,"),
        ('cd() { builtin cd "$@" && echo moved; }; rm() { echo no; }; cd /usr', "pwd", "/usr"),
        ("alias rm='echo no' cat='echo no'; set -o noglob -o noclobber", "echo *", "*"),
    ],
)  # fmt: skip
async def test_what_a_command_leaves_the_next_one_finds(
    episode: Episode, first: str, then: str, expected: str
) -> None:
    await episode.see(first)
    assert await episode.out(then) == expected


@pytest.mark.parametrize("first", ["true", "cd /usr"])
async def test_whole_scripts_work_as_in_any_shell(episode: Episode, first: str) -> None:
    """Row WT1: `cd x && y`, `VAR=1 cmd`, loops, functions and here-documents."""
    await episode.see(first)
    seen = await episode.see(
        "cd / && pwd; VAR=1 sh -c 'echo $VAR'\nfor i in 1 2; do echo $i; done\n"
        "f() { local x=l; echo $x; }; f; cat <<'EOF'\n$x 'q'\nEOF\nexit 3"
    )
    assert seen.text == "exit code: 3\nfolder: /\nstdout:\n/\n1\n1\n2\nl\n$x 'q'"


async def test_episodes_do_not_share_a_session(sandbox: Sandbox) -> None:
    one, other = Episode(sandbox), Episode(sandbox)
    await one.see("X=1; cd /")

    assert (await other.see('echo "${X-none}"')).text == "exit code: 0\nstdout:\nnone"
    assert await one.out("echo $X $PWD") == "1 /"


async def test_a_command_that_is_killed_costs_only_its_own_changes_and_says_so(
    episode: Episode,
) -> None:
    await episode.see("X=1; cd /")
    seen = await episode.see("X=2; trap '' TERM; cd /usr; sleep 30; sleep 30", timeout_s=0.5)

    assert seen.timed_out
    assert "\nthe session is what it was before this command: the command was killed" in seen.text
    assert await episode.out("echo $X $PWD") == "1 /"


@pytest.mark.parametrize("command", ["X=2; exec true", "X=2; kill -9 $$", "X=2; kill -9 $BASHPID"])
async def test_a_shell_that_is_lost_is_told(episode: Episode, command: str) -> None:
    await episode.see("X=1")
    seen = await episode.see(command)

    assert "the session is what it was before this command: the command did not" in seen.text
    assert await episode.out("echo $X") == "1"


async def test_a_session_that_would_grow_without_bound_is_told(episode: Episode) -> None:
    await episode.see("X=1")
    seen = await episode.see(f"X=2; Y=$(head -c {MAX_STATE_BYTES} /dev/zero | tr '\\0' y)")

    assert "would take over 1048576 bytes" in seen.text
    assert await episode.out("echo $X ${Y-none}") == "1 none"


@pytest.mark.parametrize("place", ['"/dev/null/x"', '"/proc/x"'])
async def test_a_state_that_can_not_be_written_is_told(
    episode: Episode, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    await episode.see("X=1")
    monkeypatch.setattr(ShellSession, "_place", property(lambda _: place))

    seen = await episode.see("X=2; echo out")
    assert seen.text.startswith("exit code: 0\nthe session is what it was before this command: ")
    assert "its state can't be written below ${TMPDIR:-/tmp}\nstdout:\nout" in seen.text


async def test_a_full_disk_never_leaves_half_a_session(episode: Episode) -> None:
    await episode.see("A=1; Z=1")
    seen = await episode.see("Z=2; B=$(head -c 9000 /dev/zero | tr '\\0' b); ulimit -f 1")

    assert "the session is what it was before this command" in seen.text
    assert await episode.out("echo $A $Z ${B-none}") == "1 1 none"


async def test_a_folder_that_is_gone_is_told(episode: Episode, sandbox: Sandbox) -> None:
    await episode.see("mkdir gone && cd gone")
    await sandbox.exec(["rmdir", "gone"])

    seen = await episode.see("pwd")
    assert f"is gone; this command starts in {sandbox.workdir}" in seen.text
    assert f"stdout:\n{sandbox.workdir}" in seen.text


async def test_a_state_that_is_gone_is_told(episode: Episode) -> None:
    await episode.see("X=1; cd /")
    await episode.see('rm -rf "${TMPDIR:-/tmp}"/.session-*; kill -9 $$')

    seen = await episode.see("x='a b'; for i in $x; do echo ${X-none} $i; done")
    assert "stdout:\nnone a\nnone b\nstderr:\nthe state of the session is gone" in seen.text


async def test_a_restart_begins_anew(episode: Episode) -> None:
    await episode.see("X=1; cd /; set -n")
    seen = await episode.see('echo "${X-none}"', restart=True)

    assert seen.text == "exit code: 0\nstdout:\nnone"


@pytest.mark.parametrize("name", ["eval", "printf", "cd", "cat", "rm", "wc", "mkdir", "head"])
async def test_a_function_of_any_name_leaves_the_session_working(
    episode: Episode, name: str
) -> None:
    await episode.see(f"cd /; X=1; {name}() {{ :; }}")
    assert await episode.out("echo $X; pwd") == "1\n/"


@pytest.mark.threat(point=10)
@pytest.mark.parametrize(
    "attack",
    [
        "set -n",
        "set -u; set -x",
        'd=$(ls -d "${TMPDIR:-/tmp}"/.session-*); rm -rf "$d"; mkfifo "$d"',
        'cd "${TMPDIR:-/tmp}"/.session-*; rm -f ./*; mkfifo mark state1 options1 state2',
        'cd "${TMPDIR:-/tmp}"/.session-*; head -c 9000000 /dev/zero >mark; kill -9 $$',
        "eval() { :; }; printf() { :; }; set() { :; }; exit() { :; }",
        "__session_save() { :; }; readonly -f __session_save",
        "readonly __session_folder __session_saved __session_call",
        "exec >/dev/full 2>&1; cd /",
        "ulimit -f 0",
        "while :; do :; done",
        "export TMPDIR=/nowhere",
    ],
    ids=range(12),
)
async def test_no_command_holds_up_the_session_for_good(episode: Episode, attack: str) -> None:
    await episode.see("X=1")
    await episode.see(attack, timeout_s=1)
    await episode.see("true", timeout_s=1)
    assert "on" in (await episode.see("echo on", timeout_s=20, restart=True)).text


async def test_output_beside_the_session_is_bounded_and_cut_as_ever(episode: Episode) -> None:
    seen = await episode.see("cd /; seq 1 50000; echo last")

    assert seen.truncated
    assert len(seen.text.encode()) <= 16384
    assert seen.text.startswith("exit code: 0\nfolder: /\nstdout:\n1\n")
    assert seen.text.endswith("last")


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(st.characters(blacklist_characters="\0", codec="utf-8"), max_size=60))
async def test_any_value_of_a_variable_survives(shared: Sandbox, value: str) -> None:
    episode = Episode(shared)
    quoted = "'" + value.replace("'", "'\\''") + "'"

    await episode.see(f"X={quoted}")
    seen = await episode.see(f'true; [ "$X" = {quoted} ]')
    assert seen.exit_code == 0


@pytest.mark.parametrize("scripts", POSIX)
@pytest.mark.parametrize("shell", ["busybox", "dash"])
async def test_a_session_in_a_shell_that_is_not_bash(
    sandbox: Sandbox, programs: Path, tmp_path: Path, shell: str, scripts: tuple[str, str, str]
) -> None:
    """Images may have nothing but busybox; functions are all that such a shell can't list."""
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"needs {shell}")
    folder = shutil.copytree(programs, tmp_path / "bin", symlinks=True)
    (folder / "sh").unlink()
    (folder / "sh").symlink_to(program)
    small = BusyboxSandbox(sandbox, folder)
    assert (await small.exec("echo ${BASH_VERSION-none}")).stdout == b"none\n"
    episode = Episode(small)

    first, then, expected = scripts
    await episode.see(first)
    assert await episode.out(then) == expected
