"""The one shell: run a script in the sandbox, under the faces that policies know.

Observations show both streams separately and the exit code; their size is bounded.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field, validate_call

from swe_rollout.agent.tools.base import (
    Parameter,
    ParameterType,
    ToolContext,
    ToolError,
    cut_middle,
    readable,
)
from swe_rollout.agent.tools.command_rules import NO_RULES, CommandRules
from swe_rollout.agent.tools.face import Call, Face, renamed
from swe_rollout.agent.tools.files import PathKind, check_path, look
from swe_rollout.agent.tools.shell_session import ShellSession
from swe_rollout.sandbox.base import ExecResult
from swe_rollout.types.turn import Observation

_FRAME_BYTES: Final = 160
"""Bytes reserved for the lines around the output."""
_MAX_FOLDER: Final = 200
_MIN_S: Final = 0.1
_LEAST_MS: Final = 100
_STREAMS: Final = ("stdout:", "stderr:")

Deny = Annotated[
    tuple[str, ...],
    Field(description="Programs that the policy is not to run; a rule of conduct, not a wall."),
]
DenyPatterns = Annotated[
    tuple[re.Pattern[str], ...],
    Field(description="Regular expressions that no command of a script may match."),
]
Session = Annotated[
    bool,
    Field(
        description="Whether folder, variables, functions and options carry over from call to call."
    ),
]
_COMMAND: Final = Parameter("command", "The script; may have several lines.", required=True)
_RESTART: Final = Parameter(
    "restart",
    "true: forget the session's folder, variables and functions before the command runs.",
    ParameterType.BOOLEAN,
)
_FOLDER: Final = Parameter("working_dir", "The folder in which it starts; default: the repository.")
_READ: Final = "Run a bash script in the sandbox and read its output and exit code."
_NO_INPUT: Final = "There is no terminal and no input."
_EACH_CALL: Final = (
    "Every call is a new shell that starts in the repository: `cd` and variables do not carry over."
)
_SESSION: Final = (
    "The calls are one session: folder, variables, functions and options carry over, also after an "
    "`exit`. A command that is killed leaves the session as it was before."
)


async def run_script(
    call: Call,
    script: str,
    *,
    rules: CommandRules = NO_RULES,
    session: ShellSession | None = None,
    folder: str | None = None,
    titles: tuple[str, str] = _STREAMS,
) -> Observation:
    """Run a script within the call's time limit and return its observation.

    It starts in `folder`, by default the sandbox's or the session's. `titles` are the headings of
    the two streams.
    """
    if "\0" in script or "\0" in (folder or ""):
        raise ToolError("a command can't hold a NUL character")
    if refusal := rules.refusal(script):
        raise ToolError(refusal)
    sandbox, context = call.sandbox, call.context
    if session is None:
        cwd = posixpath.join(sandbox.workdir, folder) if folder else None
        result = await sandbox.exec(script, cwd=cwd, timeout_s=context.timeout_s)
        return program_observation(result, context, titles=titles)
    result, problem = await session.run(sandbox, script, timeout_s=context.timeout_s)
    moved = session.folder not in {"", sandbox.workdir}
    # A truncated path would send the policy elsewhere.
    where = f"folder: {session.folder}" if moved and len(session.folder) <= _MAX_FOLDER else ""
    return program_observation(result, context, titles=titles, note=problem or where)


def program_observation(
    result: ExecResult,
    context: ToolContext,
    *,
    titles: tuple[str, str] = _STREAMS,
    note: str = "",
) -> Observation:
    """Return the observation of a program's result: exit code, stdout and stderr.

    `titles` are the headings of the two streams; `note` follows the exit code.
    """
    stdout = _stream(result.stdout, result.stdout_bytes)
    stderr = _stream(result.stderr, result.stderr_bytes)
    room = max(0, context.output_bytes - _FRAME_BYTES - len(note.encode()))
    # Each stream gets half of the space, and what the other leaves of its half.
    shown_stdout = cut_middle(stdout, max(room // 2, room - len(stderr.encode())))
    shown_stderr = cut_middle(stderr, max(room // 2, room - len(stdout.encode())))
    lines = [_outcome(result, context), note]
    lines += [f"{titles[0]}\n{shown_stdout}"] if stdout else []
    lines += [f"{titles[1]}\n{shown_stderr}"] if stderr else []
    return Observation(
        cut_middle("\n".join(filter(None, lines)), context.output_bytes),
        exit_code=result.exit_code,
        timed_out=result.timed_out,
        truncated=result.truncated or shown_stdout != stdout or shown_stderr != stderr,
    )


def _outcome(result: ExecResult, context: ToolContext) -> str:
    if result.timed_out:
        return f"killed after {round(context.timeout_s, 1):g} s: the time for one command was over"
    silent = "" if result.stdout or result.stderr else " (no output)"
    return f"exit code: {result.exit_code}{silent}"


def _stream(kept: bytes, written: int) -> str:
    lost = written - len(kept)
    rest = f"\n[... {lost} more bytes were not kept ...]" if lost > 0 else ""
    return readable(kept).removesuffix("\n") + rest


def _within(call: Call, seconds: float) -> Call:
    """Return the call with a time limit of its own, which can only shorten it."""
    return replace(call, context=replace(call.context, timeout_s=seconds))


def _not_used(deny: tuple[str, ...]) -> str:
    return f" Not to be used: {', '.join(deny)}." if deny else ""


@validate_call
def bash(*, session: Session = False, deny: Deny = (), deny_patterns: DenyPatterns = ()) -> Face:
    """Offer `bash`: each call has its own shell, or all of an episode share one session."""
    rules = CommandRules(deny, deny_patterns)

    async def act(call: Call) -> Observation:
        kept = call.context.state.of(ShellSession) if session else None
        if kept and call.flag("restart"):
            kept.restart()
        return await run_script(call, call.text("command") or "", rules=rules, session=kept)

    return Face.of(
        act,
        "bash",
        f"{_READ} {_SESSION if session else _EACH_CALL} {_NO_INPUT}{_not_used(deny)}",
        *((_COMMAND, _RESTART) if session else (_COMMAND,)),
    )


Timeout = Annotated[
    float,
    Field(
        gt=0, description="Seconds where the policy names none; never more than a call may take."
    ),
]


@validate_call
def bash_executor(
    *,
    timeout: Timeout = 30.0,
    deny: Deny = (),
    deny_patterns: DenyPatterns = (),
) -> Face:
    """Offer `bash_executor`, with a folder and a time limit that the policy chooses."""
    rules = CommandRules(deny, deny_patterns)

    async def act(call: Call) -> Observation:
        wanted = call.arguments.get("timeout")
        seconds = wanted if isinstance(wanted, int | float) else timeout
        seen = await run_script(
            _within(call, min(max(seconds, _MIN_S), call.context.timeout_s)),
            call.text("command") or "",
            rules=rules,
            folder=call.text("working_directory"),
        )
        if call.flag("capture_output", default=True) or seen.exit_code is None:
            return seen
        return replace(seen, text=seen.text.partition("\n")[0], truncated=False)

    return Face.of(
        act,
        "bash_executor",
        f"{_READ} Every call is a new shell. {_NO_INPUT}{_not_used(deny)}",
        _COMMAND,
        Parameter("working_directory", "The folder in which it starts."),
        Parameter(
            "timeout", f"Seconds until it is killed; default {timeout:g}.", ParameterType.NUMBER
        ),
        Parameter(
            "capture_output",
            "Whether to return its output; default true. The exit code always is.",
            ParameterType.BOOLEAN,
        ),
    )


@validate_call
def r2e_bash(
    *, deny: Deny = ("git", "ipython", "jupyter", "nohup"), session: Session = False
) -> Face:
    """Offer the shell of R2E-Gym, whose command is `cmd` or `command`."""

    async def act(call: Call) -> Observation:
        scripts = [text for each in ("cmd", "command") if (text := call.text(each)) is not None]
        if len(scripts) != 1:
            raise ToolError("give one command, as cmd")
        return await run_script(
            call,
            scripts[0],
            rules=CommandRules(deny),
            session=call.context.state.of(ShellSession) if session else None,
            titles=("[STDOUT]", "[STDERR]"),
        )

    return Face.of(
        act,
        "r2e_bash_executor",
        "Run a bash command in the sandbox and read its output and exit code. "
        f"{_NO_INPUT}{_not_used(deny)}",
        Parameter("cmd", "The command; may have several lines."),
        Parameter("command", "Another name of cmd."),
    )


@validate_call
def claude_bash(*, deny: Deny = (), deny_patterns: DenyPatterns = ()) -> Face:
    """Offer Claude Code's `Bash`, with a folder and a time limit for each call."""
    return _bash_with_limit("timeout", deny, deny_patterns)


@validate_call
def k8s_bash(*, deny: Deny = (), deny_patterns: DenyPatterns = ()) -> Face:
    """Offer `Bash` as an earlier library did."""
    return _bash_with_limit("timeout_ms", deny, deny_patterns).named("k8s_bash")


def _bash_with_limit(
    limit: str, deny: tuple[str, ...], deny_patterns: tuple[re.Pattern[str], ...]
) -> Face:
    rules = CommandRules(deny, deny_patterns)

    async def act(call: Call) -> Observation:
        limit_ms = call.integer(limit, least=_LEAST_MS)
        folder = await _existing_folder(call)
        longest_s = call.remaining_s
        seconds = longest_s if limit_ms is None else min(longest_s, limit_ms / 1000)
        script = call.required("command")
        return await run_script(_within(call, seconds), script, rules=rules, folder=folder)

    return Face.of(
        act,
        "Bash",
        f"{_READ} Every call is a new shell: `cd` and variables do not carry over. "
        f"{_NO_INPUT}{_not_used(deny)}",
        _COMMAND,
        Parameter(
            limit, "Time limit in milliseconds; at most that of the session.", ParameterType.INTEGER
        ),
        Parameter("description", "What the script does, in a few words."),
        Parameter("working_directory", "The folder to start in; the repository if not given."),
    )


async def _existing_folder(call: Call) -> str | None:
    """Return the folder that a call asks for. Raises ToolError if it does not exist."""
    folder = call.text("working_directory")
    if folder is None:
        return None
    check_path(folder, "working_directory")
    info = await look(call, folder)
    if info.kind is not PathKind.DIRECTORY:
        raise ToolError(f"{info.path} is not a folder")
    return info.path


async def _execute(call: Call) -> Observation:
    return await run_script(call, call.text("command") or "", folder=call.text("working_dir"))


async def _run_tests(call: Call) -> Observation:
    script, file = call.text("test_command") or "", call.text("test_file")
    script = f"{script} {shlex.quote(file)}" if file else script
    return await run_script(call, script, folder=call.text("working_dir"))


EXECUTE_BASH: Final = Face.of(
    _execute, "execute_bash", f"{_READ} Every call is a new shell. {_NO_INPUT}", _COMMAND, _FOLDER
)
RUN_TESTS: Final = Face.of(
    _run_tests,
    "run_tests",
    "Run tests and read their output and exit code.",
    Parameter("test_command", "The command, such as pytest -q.", required=True),
    Parameter("test_file", "A file of tests, put behind the command."),
    _FOLDER,
)
k8s_bash_executor = renamed(bash_executor, "k8s_bash_executor")
