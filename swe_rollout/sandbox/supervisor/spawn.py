"""How the Python supervisor starts a program: found as a shell finds it, in a session of its own.

The rules it is written under are told in `main`.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

from swe_rollout.sandbox.supervisor.bytes import PIPE, BrokenProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    Launch = Callable[[str, list[str], dict[bytes, bytes], tuple[int, ...]], int]

RESET = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGXFSZ,
    signal.SIGXCPU,
    signal.SIGCHLD,
)
"""What a command finds as a new process does, whatever this one ignores."""
NOT_FOUND = 127
NOT_STARTED = 126


class NotStartedError(Exception):
    """A command that can't be started: its exit code and the words for its stderr."""

    def __init__(self, code: int, words: str) -> None:
        Exception.__init__(self, words)
        self.code = code
        self.words = os.fsencode(words + "\n")


def spawn(
    launch: Launch, arguments: list[str], cwd: str, env: dict[bytes, bytes], ends: tuple[int, ...]
) -> int:
    """The process id of the program, in a session of its own; NotStartedError as a shell says it.

    `ends` become its standard streams.
    """
    try:
        os.chdir(cwd)
    except (OSError, ValueError):
        raise NotStartedError(NOT_STARTED, f"cd: {cwd}: no such folder") from None
    env[b"PWD"] = os.fsencode(cwd)
    try:
        program = find(arguments[0], os.fsdecode(env.get(b"PATH", b"/usr/bin:/bin")))
        return start(launch, program, arguments, env, ends)
    except OSError as error:
        words = "not found" if error.errno == errno.ENOENT else os.strerror(error.errno or 0)
        code = NOT_FOUND if error.errno == errno.ENOENT else NOT_STARTED
        raise NotStartedError(code, f"{arguments[0]}: {words}") from error
    finally:
        os.chdir("/")


def find(name: str, path: str) -> str:
    """The file of a program, as a shell finds it; OSError when there is none."""
    if "/" in name:
        return name
    places = [f"{folder or '.'}/{name}" for folder in path.split(":")]
    for place in places:
        if os.access(place, os.X_OK) and os.path.isfile(place):
            return place
    error = errno.EACCES if any(map(os.path.isfile, places)) else errno.ENOENT
    raise OSError(error, os.strerror(error))


def start(
    launch: Launch,
    program: str,
    arguments: list[str],
    env: dict[bytes, bytes],
    ends: tuple[int, ...],
) -> int:
    """Run a program; one that is only text goes to a shell."""
    try:
        return launch(program, arguments, env, ends)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    return launch("/bin/sh", ["sh", program] + arguments[1:], env, ends)  # noqa: RUF005 - as of 3.4


def launch_by_spawn(
    program: str, arguments: list[str], env: dict[bytes, bytes], ends: tuple[int, ...]
) -> int:
    """Without a copy of this process: quick, from Python 3.8."""
    actions = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(ends)]
    return os.posix_spawn(
        program,
        arguments,
        env,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=RESET,
    )


def launch_by_fork(
    program: str, arguments: list[str], env: dict[bytes, bytes], ends: tuple[int, ...]
) -> int:
    """The same for older Pythons; what fails is told through a pipe."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for number, end in enumerate(ends):
                os.dup2(end, number)
            for number in RESET:
                signal.signal(number, signal.SIG_DFL)
            os.execve(program, arguments, env)  # noqa: S606 - what it is for
        except OSError as error:
            os.write(tell, b"%d" % (error.errno or errno.EINVAL))
        finally:
            os._exit(NOT_STARTED)
    os.close(tell)
    try:
        code = os.read(told, PIPE)
    finally:
        os.close(told)
    if code:
        os.waitpid(pid, 0)
        raise OSError(int(code), os.strerror(int(code)))
    return pid


def launcher() -> Launch:
    """The quick way where this Python and its C library have it, by having tried."""
    try:
        os.waitpid(launch_by_spawn("/bin/sh", ["sh", "-c", ":"], {}, (0, 1, 2)), 0)
    except (AttributeError, NotImplementedError, OSError, TypeError):
        return launch_by_fork
    return launch_by_spawn


def words_of(text: bytes) -> list[bytes]:
    """The words of a request: in double quotes, escaped as a shell reads them."""
    if not (text.startswith(b'"') and text.endswith(b'"')):
        raise BrokenProtocolError
    words, open_word = [], b""
    for piece in text[1:].split(b'"'):
        open_word += piece
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            open_word += b'"'
        else:
            words.append(open_word)
            open_word = b""
    # Every second one is the space between two words.
    if any(space != b" " for space in words[1:-1:2]) or len(words) % 2 or words[-1] or open_word:
        raise BrokenProtocolError
    return [unescaped(word) for word in words[::2]]


def one_word(text: bytes) -> bytes:
    """The only word of a request."""
    words = words_of(text)
    if len(words) != 1:
        raise BrokenProtocolError
    return words[0]


def unescaped(word: bytes) -> bytes:
    """A word without its escapes."""
    if b"\\" not in word and b"$" not in word:
        return word
    parts = word.split(b"\\")
    plain, literal = [parts[0].replace(b"${_sv_nl}", b"\n")], False
    for part in parts[1:]:
        if literal or not part:
            # After an escaped backslash, which left an empty part, nothing is escaped.
            plain.append(part.replace(b"${_sv_nl}", b"\n") if literal else b"\\")
            literal = not literal
        else:
            plain.append(part[:1] + part[1:].replace(b"${_sv_nl}", b"\n"))
    return b"".join(plain)
