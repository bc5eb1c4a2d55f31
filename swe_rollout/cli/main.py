"""The entry point: verbs by panel, and what every verb does when something is wrong.

Modules of the verbs import what they need when they are called, so that `--help` is quick.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout import __version__
from swe_rollout.cli import (
    check_template,
    data,
    engine,
    install,
    launch,
    look,
    run,
    setup,
    spec,
    watch,
    worker,
)
from swe_rollout.cli.options import option
from swe_rollout.errors import SweRolloutError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

EXIT_CODES = (
    "Exit codes: 0 ok · 1 the job or a check failed · 2 usage · 3 something is missing here "
    "· 4 a service does not answer · 130 interrupted. Every option is also a variable, such as "
    "SWE_ROLLOUT_RUN_STORE."
)
_BUG = "this is a bug in swe-rollout: please report it with the lines above\n"


def main() -> None:
    """Run the command line and exit."""
    sys.excepthook = _report_bug
    try:
        command()(prog_name=_called())
    except SweRolloutError as error:
        from swe_rollout.cli.output import show_error

        show_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of stdout has gone, as `head` does; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def command() -> Callable[..., object]:
    """The command line, to be called once.

    Calling the application itself would put typer's own exception hook over ours.
    """
    return typer.main.get_command(command_line())


def _called() -> str:
    """What a person typed: kubectl calls its plugins `kubectl-NAME`."""
    plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    return "kubectl swe-rollout" if plugin else "swe-rollout"


def command_line() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="swe-rollout",
        help="Roll out coding agents for reinforcement learning: exact tokens, earned rewards.",
        epilog=EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "auto_envvar_prefix": "SWE_ROLLOUT",
        },
    )
    app.callback()(_common)
    app.command(rich_help_panel="Run")(run.run)
    app.command(rich_help_panel="Run")(launch.launch)
    app.command(rich_help_panel="Run")(launch.cancel)
    app.command(rich_help_panel="Run")(launch.suspend)
    app.command(rich_help_panel="Run")(launch.resume)
    app.command(rich_help_panel="Watch")(look.status)
    app.command(rich_help_panel="Watch")(watch.watch)
    app.command(rich_help_panel="Watch")(watch.logs)
    app.command(rich_help_panel="Watch")(watch.events)
    app.command(rich_help_panel="Look")(look.view)
    app.command(rich_help_panel="Data")(data.validate)
    app.command(rich_help_panel="Data")(data.prefetch)
    app.command(rich_help_panel="Data")(data.export)
    app.command(rich_help_panel="Setup")(install.install)
    app.command(rich_help_panel="Setup")(setup.doctor)
    app.command(rich_help_panel="Setup")(check_template.check_template)
    app.command(rich_help_panel="Shell")(spec.explain)
    app.command(rich_help_panel="Shell")(spec.init)
    app.command(hidden=True)(worker.worker)
    datasets = _group("datasets", "Datasets as files.")
    datasets.command()(data.rows)
    app.add_typer(datasets, rich_help_panel="Data")
    engines = _group("engine", "Engines: how they stand, their weights, and one without a model.")
    engines.command()(engine.status)
    engines.command()(engine.update_weights)
    engines.command()(setup.serve_scripted)
    app.add_typer(engines, rich_help_panel="Setup")
    return app


def _group(name: str, about: str) -> typer.Typer:
    group = typer.Typer(name=name, help=about, no_args_is_help=True)
    group.callback()(_nothing)  # without a callback, typer makes a lone verb the group itself
    return group


def _nothing() -> None:
    """A group of verbs does nothing by itself."""


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


def _common(
    *,
    verbose: Annotated[
        int, option("--verbose", "-v", count=True, help="Say more, on stderr. Repeats.")
    ] = 0,
    quiet: Annotated[bool, option("--quiet", "-q", help="Log errors only.")] = False,
    _version: Annotated[
        bool,
        option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    from swe_rollout.cli.logs import configure_logs
    from swe_rollout.cli.output import talk_console

    configure_logs(talk_console(), verbosity=-1 if quiet else verbose)


def _report_bug(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.__excepthook__(kind, error, trace)
    sys.stderr.write(_BUG)


if __name__ == "__main__":
    main()
