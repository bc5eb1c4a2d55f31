"""The verbs and their group. A module is imported when its verb is used, not for `--help`.

A test compares each line of `--help` with the docstring of its verb. Every option has a variable:
for `--store` of `run`, it is `SWE_ROLLOUT_RUN_STORE`. Options on the command line take precedence
over variables, and these over the job file. Secrets are never options: options name the variables
that hold them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from importlib import import_module
from itertools import groupby
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from swe_rollout.cli.output import say

_HELP_WIDTH: Final = 100
SETTINGS: Final[Mapping[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": _HELP_WIDTH,
}
"""Settings for parsing every command and showing its help."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the command line, or a group of verbs."""

    panel: str
    """The panel of `--help` that lists the verb; empty if none does."""
    name: str
    about: str
    """The start of the verb's docstring; for a group, its help."""
    home: str
    """The verb's module in this package, with the function after a colon if it has another name;
    verbs of a group are separated by blanks."""

    @property
    def is_group(self) -> bool:
        """Whether it is a group of verbs."""
        return " " in self.home or self.home.startswith("+")

    def functions(self) -> Iterator[Callable[..., object]]:
        """Import and yield the verb, or the verbs of the group."""
        for home in self.home.removeprefix("+").split():
            module, _, attribute = home.partition(":")
            found = import_module(f"swe_rollout.cli.{module}")
            yield getattr(found, attribute or module)


RUN: Final = "Run"
MONITOR: Final = "Monitor"
RESULTS: Final = "Results"
DATASETS: Final = "Datasets"
SETUP: Final = "Setup"
JOB_FILES: Final = "Job files"
VERBS: Final = (
    Verb(RUN, "run", "Run a job in this process.", "run"),
    Verb(RUN, "fork", "Begin new episodes from a recorded turn.", "fork"),
    Verb(RUN, "gateway", "Serve chat APIs over a job's engine.", "gateway"),
    Verb(
        RUN,
        "harness",
        "Install agents that are programs.",
        "harness:install harness:ls harness:manifest",
    ),
    Verb(RUN, "launch", "Launch a job on the cluster and follow it.", "launch"),
    Verb(RUN, "cancel", "Cancel a job on the cluster.", "job_control:cancel"),
    Verb(RUN, "suspend", "Suspend a job on the cluster.", "job_control:suspend"),
    Verb(RUN, "resume", "Resume a suspended job.", "job_control:resume"),
    Verb(RUN, "sandbox", "Run commands in sandboxes.", "+sandbox:run"),
    Verb(MONITOR, "status", "Show a job's episodes.", "status"),
    Verb(MONITOR, "ls", "List the jobs of a store.", "status:ls"),
    Verb(MONITOR, "watch", "Follow a job until it completes or fails.", "launch:watch"),
    Verb(MONITOR, "logs", "Print the log lines of a job's workers.", "logs"),
    Verb(MONITOR, "events", "List the cluster's events about a job.", "logs:events"),
    Verb(RESULTS, "view", "Write a job or an episode as one HTML page.", "view"),
    Verb(
        RESULTS, "export", "Write trajectories for trainers, graders, viewers and people.", "export"
    ),
    Verb(RESULTS, "stats", "Count turns, calls by tool and status, errors, tokens.", "stats"),
    Verb(RESULTS, "diff", "Compare two jobs, or two episodes.", "diff"),
    Verb(RESULTS, "replay", "Carry out the recorded calls again in fresh sandboxes.", "replay"),
    Verb(RESULTS, "regrade", "Grade stored patches again.", "regrade"),
    Verb(DATASETS, "validate", "Check that a dataset can be graded.", "validate"),
    Verb(DATASETS, "audit", "Find rows that lie.", "audit"),
    Verb(
        DATASETS,
        "prefetch",
        "Pull the images of a dataset's tasks onto every node.",
        "datasets:prefetch",
    ),
    Verb(DATASETS, "datasets", "Convert datasets to files.", "+datasets:rows"),
    Verb(SETUP, "install", "Install RolloutJobs on a cluster.", "install"),
    Verb(SETUP, "uninstall", "Remove RolloutJobs from a cluster.", "install:uninstall"),
    Verb(SETUP, "doctor", "Check this machine.", "doctor"),
    Verb(
        SETUP, "check-template", "Check that a model's tokens can be kept exact.", "check_template"
    ),
    Verb(
        SETUP,
        "engine",
        "Inspect and update engines, or serve one without a model.",
        "engine:status engine:update_weights engine:serve_scripted",
    ),
    Verb(JOB_FILES, "explain", "Explain a field of a RolloutJob.", "job_file:explain"),
    Verb(JOB_FILES, "init", "Write a commented job file that runs unchanged.", "job_file:init"),
    Verb(
        JOB_FILES, "mcp-tools", "Print the tools that the MCP servers of a job offer.", "mcp_tools"
    ),
    Verb("", "worker", "Run one worker's share of a RolloutJob.", "worker"),
)


class _Commands(Mapping[str, Any]):
    """Maps verbs to commands, which are imported on lookup."""

    def __init__(self) -> None:
        self._verbs = {verb.name: verb for verb in VERBS}
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        verb = self._verbs[name]
        if name not in self._built:
            self._built[name] = _command(verb)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._verbs)

    def __len__(self) -> int:
        return len(self._verbs)


class VerbGroup(TyperGroup):
    """The group of all verbs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def list_commands(self, ctx: object) -> list[str]:
        """Return the names of the verbs without importing them."""
        del ctx
        return list(self.commands)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options in front of the verb."""
        take_plain_values(self.get_params(ctx))
        name_variables(self.get_params(ctx), ctx.auto_envvar_prefix)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options without their environment variables, like the other verbs."""
        for each in self.get_params(ctx):
            if isinstance(each, TyperOption):
                each.show_envvar = False
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: object, formatter: Any) -> None:
        """Write the verbs by panel."""
        del ctx
        widest = max(len(verb.name) for verb in VERBS)
        for panel, verbs in groupby(VERBS, key=lambda verb: verb.panel):
            if panel:
                with formatter.section(panel):
                    formatter.write_dl([(verb.name.ljust(widest), verb.about) for verb in verbs])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return verbs and options that start with `incomplete`, without importing verbs."""
        item = import_module("typer._click.shell_completion").CompletionItem
        found = [
            item(verb.name, help=verb.about)
            for verb in VERBS
            if verb.panel and verb.name.startswith(incomplete)
        ]
        return [*found, *super(TyperGroup, self).shell_complete(ctx, incomplete)]


class _VerbCommand(TyperCommand):
    """A verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options and arguments of the verb."""
        take_plain_values(self.get_params(ctx))
        name_variables(self.get_params(ctx), ctx.auto_envvar_prefix)
        if not ctx.resilient_parsing:
            warn_of_unknown_variables(self.get_params(ctx), ctx.auto_envvar_prefix)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write how to set options through variables."""
        name_variables(self.get_params(ctx), ctx.auto_envvar_prefix)
        if note := variables_note(self.get_params(ctx)):
            formatter.write_paragraph()
            formatter.write_text(note)


def _command(verb: Verb) -> Any:
    app = typer.Typer(
        name=verb.name,
        help=verb.about if verb.is_group else None,
        no_args_is_help=verb.is_group,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=dict(SETTINGS),
    )
    for function in verb.functions():
        app.command(
            cls=_VerbCommand,
            name=None if verb.is_group else verb.name,
            hidden=not verb.panel,
            context_settings=dict(SETTINGS),
        )(function)
    if verb.is_group:
        app.callback()(_nothing)  # without this, typer turns a lone verb into the group itself
    command = typer.main.get_command(app)
    command.name = verb.name
    return command


def _nothing() -> None:
    """Do nothing: a group of verbs has no action of its own."""


def name_variables(parameters: Sequence[Any], prefix: str | None) -> None:
    """Name each option's variable after its long name, except for `--help` and `--version`."""
    for each in parameters:
        if each.param_type_name != "option":
            continue
        each.show_envvar = False
        if each.is_eager or prefix is None:
            each.allow_from_autoenv = False
        elif each.envvar is None:  # Kubernetes sets a worker's
            long = max(each.opts, key=len).lstrip("-")
            each.envvar = f"{prefix}_{re.sub(r'[^A-Z0-9]', '_', long.upper())}"


def variables_note(parameters: Sequence[Any]) -> str:
    """Return the line of `--help` about options' variables; empty if there are none."""
    named = [each for each in parameters if _variable(each)]
    if not named:
        return ""
    example = next((each for each in named if not each.is_flag), named[0])
    option = max(example.opts, key=len)
    return f"As a variable, {option} is {example.envvar}; so are all."


def warn_of_unknown_variables(parameters: Sequence[Any], prefix: str | None) -> None:
    """Warn on stderr of variables that look like this verb's but match no option."""
    if prefix is None or not any(name.startswith(f"{prefix}_") for name in os.environ):
        return

    known = [name for each in parameters if (name := _variable(each))]
    for name in sorted(os.environ):
        if name.startswith(f"{prefix}_") and name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            say(f"the variable {name} stands for no option{hint}")


def _variable(parameter: Any) -> str:
    is_option = parameter.param_type_name == "option" and not parameter.is_eager
    return parameter.envvar if is_option and isinstance(parameter.envvar, str) else ""


def take_plain_values(parameters: list[Any]) -> None:
    """Check these parameters' plain values here, because other typer versions have no hook."""
    for parameter in parameters:
        if getattr(parameter, "_runtime_param", parameter) is None:
            parameter._runtime_param = _PlainValue(parameter.type_descriptor.annotation)  # noqa: SLF001


class _PlainValue:
    """Converts the value of one parameter for typer."""

    def __init__(self, kind: object) -> None:
        self._kind = kind

    def coerce(self, value: object, param: Any, ctx: object) -> object:
        """Convert the value to its type. Raises typer's own error for an invalid one."""
        is_many = param.multiple or param.nargs == -1
        if value is None or (is_many and not value):
            return () if is_many else None
        if not is_many:
            if type(value) is self._kind and self._kind in (str, bool, int):
                return value
            if isinstance(self._kind, type) and issubclass(self._kind, Enum):
                member = next((each for each in self._kind if value in (each, each.value)), None)
                if member is not None:
                    return member
        param._runtime_param = None  # noqa: SLF001 - typer makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
