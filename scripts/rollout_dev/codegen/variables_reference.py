"""The generated part of the command line's page: every option and its variable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from rollout_dev.codegen.pages import table
from swe_rollout.cli.main import build_command
from swe_rollout.cli.verbs import name_variables


def variable_blocks() -> dict[str, Iterable[str]]:
    """Return the list of every option of the command line and its variable."""
    return {"options": _options()}


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every verb that help lists, with its path."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        elif not command.hidden:
            yield (*path, name), command


def variables(path: tuple[str, ...], command: Any) -> dict[str, str]:
    """Return the variable of each option of a verb, by the option's names."""
    prefix = "_".join(("SWE_ROLLOUT", *(part.upper().replace("-", "_") for part in path)))
    name_variables(command.params, prefix)
    return {
        ", ".join(sorted(each.opts, key=len)): each.envvar
        for each in command.params
        if each.param_type_name == "option" and not each.is_eager
    }


def _options() -> Iterator[str]:
    group = build_command()
    rows = [
        ("swe-rollout", "-v, --verbose", "SWE_ROLLOUT_VERBOSE", "Log more, to stderr: 1 or 2."),
        ("swe-rollout", "-q, --quiet", "SWE_ROLLOUT_QUIET", "Log errors only."),
    ]
    for path, command in commands(group):
        helps = {", ".join(sorted(each.opts, key=len)): each for each in command.params}
        for option, variable in variables(path, command).items():
            about = re.sub(r"([*_<])", r"\\\1", helps[option].help or "")
            rows.append((" ".join(path), option, variable, about))
    shown = ((verb, f"`{option}`", f"`{name}`", about) for verb, option, name, about in rows)
    yield from table(("verb", "option", "variable", "meaning"), shown)
