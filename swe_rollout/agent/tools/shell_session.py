"""ShellSession: a shell whose state outlives a command, without a long-running process.

Every command runs in a fresh shell, which first reads the state that an earlier one left in the
sandbox, and at its end writes its own. So a command has the usual limits, and killing it loses
only its own changes, never the session.

The state is the folder, variables and options and, in bash, also functions, aliases and arrays.
Traps, jobs and open files end with their command. A policy that tampers with the session's files
harms only that session: after a restart they are elsewhere.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Final

from swe_rollout.agent.tools.base import readable
from swe_rollout.agent.tools.marks import new_mark
from swe_rollout.sandbox.base import ExecResult, Sandbox

MAX_STATE_BYTES: Final = 1 << 20
"""Maximum size of a session's state, which every command reads back."""
_CHECK_S: Final = 10.0
_MARK_BYTES: Final = 4200

# Our own names start with __session. `command` bypasses the policy's functions, and functions that
# are defined before its state is read are free of its aliases.
_BEGIN: Final = r"""
__session_folder={folder}
command mkdir -p -m 700 "$__session_folder" 2>/dev/null
for __session_name in "$__session_folder"/*; do
    case $__session_name in
        */state{saved} | */options{saved}) ;;
        *) command rm -f "$__session_name" ;;
    esac
done
__session_save() {{
    [ -z "$__session_saved" ] || return 0
    __session_saved=yes
    __session_state=$__session_folder/state$__session_call
    {{ set +o; echo "umask $(umask)"; }} >|"$__session_folder/options$__session_call"
    set +eux +o noglob
    __session_cwd=$PWD __session_old=${{OLDPWD-}} __session_ifs=${{IFS-}}
    IFS=$(command printf ' \t\n.') && IFS=${{IFS%.}}
    {{
        if [ -n "${{BASH_VERSION-}}" ]; then __session_bash; else set && export -p; fi
        echo '# end'
    }} >|"$__session_state"
    if [ "$(command tail -n 1 "$__session_state")" != '# end' ]; then
        return 1
    elif [ "$(command wc -c <"$__session_state")" -gt {max_bytes} ]; then
        command printf 'large\n' >|"$__session_folder/mark"
    else
        command printf 'saved %s\n%s' "$__session_call" "$__session_cwd" >|"$__session_folder/mark"
    fi
}}
if [ -n "${{BASH_VERSION-}}" ]; then
    eval '
    __session_bash() {{
        shopt -p
        echo "for __session_name in \$(compgen -e); do"
        echo "case \$__session_name in BASH*|PWD|OLDPWD) ;;"
        echo "*) unset -v \$__session_name ;; esac; done"
        for __session_name in $(compgen -v); do
            case $__session_name in
                __session_cwd|__session_old|__session_ifs) declare -p "$__session_name" ;;
                BASH*|__session_*|COMP_*|EPOCH*|DIRSTACK|FUNCNAME|EUID|GROUPS|PPID|UID) ;;
                SHELLOPTS|PIPESTATUS|RANDOM|SRANDOM|SECONDS|LINENO|HISTCMD|IFS|PWD|OLDPWD|_) ;;
                *) declare -p "$__session_name" ;;
            esac
        done
        for __session_name in $(compgen -A function); do
            case $__session_name in
                __session_*) ;;
                *) declare -f "$__session_name" ;;
            esac
        done
        declare -Fx
        alias -p
    }}'
fi
"""
_RESTORE: Final = r"""
if [ -f "$__session_folder/state{saved}" ]; then
    . "$__session_folder/state{saved}" 2>/dev/null
    IFS=$__session_ifs
    if command cd -- "$__session_cwd" 2>/dev/null; then OLDPWD=$__session_old
    else printf '%s is gone; this command starts in %s\n' "$__session_cwd" "$(pwd)" >&2; fi
else printf 'the state of the session is gone; this command starts a new one\n' >&2; fi
"""
_RUN: Final = r"""
__session_saved= __session_call={call}
trap '{{ __session_save; }} 2>/dev/null' EXIT
{options}
command eval {command}
{{ __session_status=$?; __session_save; }} 2>/dev/null
exit "$__session_status"
"""


@dataclass(slots=True)
class ShellSession:
    """One episode's session."""

    token: str = field(default_factory=lambda: new_mark(8))
    calls: int = 0
    saved: int = 0
    """The call from whose state the next one starts; 0 starts a new session."""
    folder: str = ""
    """The folder in which the next command starts, if known."""

    def restart(self) -> None:
        """Start a new session without the previous state."""
        self.token, self.calls, self.saved, self.folder = new_mark(8), 0, 0, ""

    async def run(
        self, sandbox: Sandbox, command: str, *, timeout_s: float
    ) -> tuple[ExecResult, str]:
        """Run a command; return its result, and why its state was not kept, or an empty string.

        Raises what `sandbox.exec` raises.
        """
        self.calls += 1
        result = await sandbox.exec(self._script(command), timeout_s=timeout_s)
        mark_file = f"{self._place}/mark"
        look = (
            f"if [ -f {mark_file} ]; then head -c {_MARK_BYTES} {mark_file}; "
            f"else (: >{mark_file}) 2>/dev/null || echo full; fi"
        )
        mark = await sandbox.exec(["/bin/sh", "-c", look], timeout_s=min(timeout_s, _CHECK_S))
        first, _, folder = readable(mark.stdout).partition("\n")
        if first == f"saved {self.calls}":
            self.saved, self.folder = self.calls, folder
            return result, ""
        kept = "is what it was before this command" if self.saved else "is a new one"
        match first:
            case "large":
                why = f"its variables and functions would take over {MAX_STATE_BYTES} bytes"
            case "full":
                why = "its state can't be written below ${TMPDIR:-/tmp}"
            case _ if result.timed_out:
                why = "the command was killed"
            case _:
                why = "the command did not leave its shell in an orderly way"
        return result, f"the session {kept}: {why}"

    @property
    def _place(self) -> str:
        # The sandbox's shell determines the folder for temporary files.
        return f'"${{TMPDIR:-/tmp}}/.session-{self.token}"'

    def _script(self, command: str) -> str:
        begin = _BEGIN.format(folder=self._place, saved=self.saved, max_bytes=MAX_STATE_BYTES)
        options = f'. "$__session_folder/options{self.saved}" 2>/dev/null' if self.saved else ""
        run = _RUN.format(call=self.calls, options=options, command=shlex.quote(command))
        return begin + (_RESTORE.format(saved=self.saved) if self.saved else "") + run
