"""The entry point of `swe-rollout`: its verbs by help panel, and the handling of their errors.

`cli.verbs` lists the verbs. Their modules import dependencies lazily to keep `--help` fast.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, NoReturn, TextIO

import typer

from swe_rollout import __version__
from swe_rollout.cli.interrupt import (
    INTERRUPTED,
    ignore_signals,
    terminate_as_interrupt,
    was_terminated,
)
from swe_rollout.cli.options import LogFormat, option
from swe_rollout.cli.output import show_error, stderr_console
from swe_rollout.cli.verbs import SETTINGS, VerbGroup
from swe_rollout.errors import (
    InternalError,
    SweRolloutError,
    UsageError,
    failure_of,
    lacking_program,
)
from swe_rollout.spec.worker_exits import WorkerExitCode
from swe_rollout.text.redaction import redact
from swe_rollout.text.user_code import user_code

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputError(SweRolloutError):
    """The result can't be written to stdout, for example because a disk is full."""


class _Pipe(io.FileIO):
    """A standard stream that interrupts the work when its reader is gone."""

    gone = False
    """Whether the reader of any stream is gone."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data) or 0
        except BrokenPipeError:
            _Pipe.gone = True
            self._discard()
            signal.raise_signal(signal.SIGINT)
            return memoryview(data).nbytes
        except OSError as error:
            self._discard()
            raise OutputError(
                "the output can't be written",
                why=error.strerror or str(error),
                fix="redirect it elsewhere",
            ) from error

    def _discard(self) -> None:
        """Discard all further output, including the interpreter's final flush."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def guard_streams() -> None:
    """Guard stdout and stderr of this process, unless a test has replaced them."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(sys.stdout, 1)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(sys.stderr, 2)


def reader_is_gone() -> bool:
    """Whether somebody closed the other end of stdout or stderr, as `head` does."""
    return _Pipe.gone


def die_by_sigpipe() -> NoReturn:
    """Die by SIGPIPE, as other tools do when their reader is gone."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    os._exit(128 + signal.SIGPIPE)


def _guarded(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # closed by the caller: `>&-`
        return Path(os.devnull).open("w", encoding="utf-8")
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(number, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        # With PYTHONUNBUFFERED, a stream writes parts of lines at once instead.
        line_buffering=bool(stream.line_buffering or getattr(stream, "write_through", False)),
    )


EXIT_CODES = (
    "Exit codes: 0 success · 1 the job or a check failed · 2 invalid request · 3 a prerequisite "
    "is missing on this machine · 4 a service is unreachable · 130 interrupted. Every option can "
    "also be set by an environment variable, such as SWE_ROLLOUT_RUN_STORE."
)
_LAST_CALLS_S = 2.0
"""How long writes to a store may take to end after an error."""
_BUG = "this is a bug in swe-rollout: please report it with the lines above\n"


def main() -> NoReturn:
    """Run the command line and exit."""
    sys.excepthook = _report_bug
    # Turns are encoded one at a time, and faster without threads of the library (`agent.encoding`).
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    guard_streams()
    code = INTERRUPTED
    with suppress(KeyboardInterrupt):  # one that arrives between two statements of `_run`
        terminate_as_interrupt()
        code = _run()
    if sys.argv[1:2] == ["worker"]:
        code = _of_a_worker(code)
    ignore_signals()  # nothing may change the exit code from here on
    _leave(code)


def _of_a_worker(code: int) -> int:
    """Return the exit code for Kubernetes: what breaks after SIGTERM, it is asked to restart."""
    if code == INTERRUPTED or (code and was_terminated()):
        return WorkerExitCode.DRAINED
    return WorkerExitCode.WRONG_USAGE if code == UsageError.exit_code else code


def _run() -> int:
    """Run the command line; return the exit code."""
    try:
        ended = build_command()(prog_name=_program_name(), standalone_mode=False)
        return ended if isinstance(ended, int) else 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except SweRolloutError as error:
        return _shown(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - shown with its traceback, as a bug
        if (code := _expected(error)) is not None:
            return code
        sys.excepthook(type(error), error, error.__traceback__)
        return 1


def _expected(error: Exception) -> int | None:
    """Show an error of the parser, the machine or the user's code, and return its exit code.

    Return None for others: bugs.
    """
    from swe_rollout.cli.files import refused_path
    from swe_rollout.cli.wrong_usage import as_usage_error, is_parse_error, shows_help

    if (lack := lacking_program(error)) is not None:
        return _shown(lack)
    if user_code(error) is not None:
        return _shown(failure_of(error, InternalError, "code of yours"))
    if (refused := refused_path(error)) is not None:
        return _shown(refused)
    if not is_parse_error(error):
        return None
    if shows_help(error):
        sys.stderr.write(f"{error}\n")
        return UsageError.exit_code
    return _shown(as_usage_error(error))


def _leave(code: int) -> NoReturn:
    """Exit with this code, which calls still in flight can't replace."""
    code = _flushed(code)
    if reader_is_gone():
        die_by_sigpipe()
    calls = sys.modules.get("swe_rollout.store.bucket")  # without it, none was made
    if calls is not None and not calls.wait_until_idle(_LAST_CALLS_S):
        os._exit(code)
    # Under `python -m`, a ^C that once passed through an `exec` of text, as in dataclasses, ends
    # the process by SIGINT, whatever its code. Another one resets the interpreter's flag.
    exec("")  # noqa: S102 - nothing
    sys.exit(code)


def _flushed(code: int) -> int:
    """Flush stdout and stderr; return the resulting exit code."""
    try:
        sys.stdout.flush()
    except OutputError as error:
        code = _shown(error)
    with suppress(OutputError):
        sys.stderr.flush()
    return code


def _shown(error: SweRolloutError) -> int:
    """Print the error; return its exit code."""
    with suppress(OutputError):
        show_error(error)
    return error.exit_code


def build_command() -> Callable[..., object]:
    """Build the command line as a click command.

    Calling the typer application itself would install typer's exception hook over ours.
    """
    return typer.main.get_command(build_app())


def _program_name() -> str:
    """Return the command as the user typed it: kubectl calls its plugins `kubectl-NAME`."""
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    return "kubectl swe-rollout" if plugin else "swe-rollout"


def build_app() -> typer.Typer:
    """Build the typer application with every verb."""
    app = typer.Typer(
        name="swe-rollout",
        cls=VerbGroup,
        help="Roll out coding agents for reinforcement learning: exact tokens, earned rewards.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={**SETTINGS, "auto_envvar_prefix": "SWE_ROLLOUT"},
    )
    app.callback()(_global_options)
    return app


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's signature
    if wanted:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


def _global_options(
    *,
    verbose: Annotated[
        int, option("--verbose", "-v", count=True, help="Log more, to stderr. Repeatable.")
    ] = 0,
    quiet: Annotated[bool, option("--quiet", "-q", help="Log errors only.")] = False,
    log_format: Annotated[LogFormat, option(help="Format of the log's lines.")] = LogFormat.LOGFMT,
    _version: Annotated[
        bool,
        option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    from swe_rollout.cli.logging_setup import configure_logs

    configure_logs(stderr_console, verbosity=-1 if quiet else verbose, form=log_format)


def _report_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))
    if not issubclass(kind, KeyboardInterrupt):
        sys.stderr.write(_BUG)


if __name__ == "__main__":
    main()
