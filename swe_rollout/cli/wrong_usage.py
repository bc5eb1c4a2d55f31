"""Turn errors of the command line's parser into our own form: what, why, fix.

Classes are recognised by name: some versions of typer have a copy of click, others use the package.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from swe_rollout.errors import UsageError
from swe_rollout.spec.fields import SpecField, fields_meant, plain
from swe_rollout.text.escaping import one_line

_OTHER_VERBS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("get", "ps", "describe", "info"), "status"),
    **dict.fromkeys(("list", "jobs", "dir"), "ls"),
    **dict.fromkeys(("delete", "rm", "kill", "stop", "abort"), "cancel JOB"),
    **dict.fromkeys(("apply", "create", "submit", "schedule"), "launch FILE"),
    **dict.fromkeys(("start", "exec", "eval", "rollout", "play"), "run FILE"),
    **dict.fromkeys(("show", "open", "inspect", "html", "report"), "view JOB"),
    "compare": "diff JOB OTHER",
    **dict.fromkeys(("convert", "dump", "save", "download"), "export JOB"),
    **dict.fromkeys(("new", "create-job", "template"), "init"),
    **dict.fromkeys(("check", "lint", "test"), "doctor"),
    "tail": "logs JOB -f",
    "follow": "watch JOB",
    "pause": "suspend JOB",
    "continue": "resume JOB",
    "delete-cluster": "uninstall",
    "grade": "regrade JOB",
    "schema": "explain",
    "completion": "--install-completion",
    "help": "--help",
    "version": "--version",
}
"""Verbs of other tools, and our equivalents."""
_OTHER_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "--format": ("--to", "--output"),
    "--json": ("--output",),
    "--out": ("--output-file", "--output"),
    "-o": ("--output-file",),
    "--output": ("--output-file",),
    "-O": ("--output",),
    "-V": ("--version",),
    "--dry-run": ("--print",),
    "--fix": ("--clean",),
    "--force": ("--overwrite",),
    "--yes": ("--overwrite",),
    "--param": ("--set",),
    "--override": ("--set",),
    "--values": ("--set",),
    "--bucket": ("--store",),
    "--dir": ("--store", "--output-file"),
    "-t": ("--to",),
}
"""Options of other tools, and our equivalents; those that the verb has are suggested."""
_MOST_FIELDS: Final = 3
_PUBLIC: Final = ("integer", "number", "true or false")
"""Types of fields whose values are shown again; a text may be a secret."""
_FILE_OPTIONS: Final = frozenset({"-f", "--file", "--filename", "--job", "-c", "--config"})


def is_parse_error(error: BaseException) -> bool:
    """Whether the command line's parser raised the error."""
    return "ClickException" in _kinds(error)


def as_usage_error(error: Any) -> UsageError:
    """Return an error that says what is wrong on the command line and what to write instead."""
    context = getattr(error, "ctx", None)
    usage = "" if context is None else context.get_usage()
    what, fix = _worded(error, context)
    helped = "" if context is None else f"`{context.command_path} --help` lists what there is"
    fix = "\n".join(filter(None, (fix, helped)))
    return UsageError(one_line(what), why=" ".join(usage.split()), fix=fix)


def shows_help(error: BaseException) -> bool:
    """Whether only a group of verbs was named, which shows its help."""
    return "NoArgsIsHelpError" in _kinds(error)


def _worded(error: Any, context: Any) -> tuple[str, str]:
    """Return what is wrong, and how to fix it."""
    kinds = _kinds(error)
    message = error.format_message().removesuffix(".")
    if "NoSuchOption" in kinds:
        what = f"there is no option {error.option_name} here"
        fix = "" if context is None else _instead_of(error.option_name, context)
    elif "MissingParameter" in kinds:
        named = message.removeprefix("Missing ").replace("'", "")
        what, fix = f"the {named} is missing", _example(context)
    elif "BadParameter" in kinds:
        what, fix = _wrong_value(error, context)
    elif "BadOptionUsage" in kinds:
        what = f"{error.option_name} has no value"
        fix = f"write one behind it: {error.option_name} VALUE"
    else:
        what, fix = _words_too_many(message, context)
    return what, fix


def _words_too_many(message: str, context: Any) -> tuple[str, str]:
    if match := re.match(r"No such command '([^']*)'", message):
        return f"there is no verb {match[1]}", _verb_instead_of(match[1], context)
    if match := re.match(r"Got unexpected extra arguments? ?\(?s?\)? ?\((.*)\)", message):
        return f"{match[1]} is one word too many", _one_word(match[1], context)
    return message[:1].lower() + message[1:], ""


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _verb_instead_of(word: str, context: Any) -> str:
    names = [] if context is None else list(context.command.list_commands(context))
    path = "swe-rollout" if context is None else context.command_path
    lower = word.lower()
    if lower in names:
        return f"did you mean `{path} {lower}`?"
    if context is not None and context.parent is None and lower in _OTHER_VERBS:
        return f"did you mean `{path} {_OTHER_VERBS[lower]}`?"
    close = get_close_matches(lower, names, n=2)
    if not close and re.search(r"\.ya?ml$", word):
        return f"did you mean `{path} run {word}`?"
    return f"did you mean {' or '.join(f'`{path} {each}`' for each in close)}?" if close else ""


def _instead_of(option: str, context: Any) -> str:
    """Return where the option belongs, or which one was meant."""
    if context.parent is None:
        if verb := _verb_with(option, context):
            return f"write it behind the verb: `swe-rollout {verb} … {option} …`"
        return _option_meant(option, sorted(_options_of(context.command, context)))
    root = context.find_root()
    if option in _options_of(root.command, root):
        return f"write it in front of the verb: `swe-rollout {option} {context.info_name} …`"
    if option in _FILE_OPTIONS and any(each.name == "file" for each in context.command.params):
        return f"the job file needs no option: `{context.command_path} job.yaml`"
    return _option_meant(option, sorted(_options_of(context.command, context)))


def _option_meant(option: str, known: Sequence[str]) -> str:
    if option in ("-w", "--watch"):
        return "did you mean `swe-rollout watch JOB`?"
    if meant := next((each for each in _OTHER_OPTIONS.get(option, ()) if each in known), ""):
        return f"did you mean {meant}?"
    close = get_close_matches(option, known, n=1, cutoff=0.7)
    fields = _fields_meant(option) if "--set" in known else ()
    # An option is the shorter way, unless a field has the very name.
    if close and not any(plain(option) == plain(field.name) for field in fields):
        return f"did you mean {close[0]}?"
    if not fields:
        return ""
    if fields[0].type == "mapping":
        return f"`swe-rollout explain {fields[0].dotted}` lists fields, which `--set` sets"
    value = _number_behind(option) if fields[0].type in _PUBLIC else "VALUE"
    sets = (f"`--set {each.dotted}={value}`" for each in fields if each.type != "mapping")
    return f"a field of the job is set by {' or '.join(sets)}"


def _fields_meant(option: str) -> tuple[SpecField, ...]:
    """Return the job's fields of the name that is most like an option's."""
    meant = fields_meant(option.lstrip("-")) if option.startswith("--") else ()
    if meant and plain(option) != plain(meant[0].name):
        meant = tuple(sorted(meant, key=lambda each: each.type == "mapping"))
    return tuple(each for each in meant if each.name == meant[0].name)[:_MOST_FIELDS]


def _number_behind(option: str) -> str:
    """Return the number that the user wrote behind an option, or `VALUE`."""
    value = r"-?\d+(?:\.\d+)?|true|false"
    found = re.search(rf"(?<!\S){re.escape(option)}[= ]({value})(?!\S)", " ".join(sys.argv[1:]))
    return found[1] if found else "VALUE"


def _options_of(command: Any, context: Any) -> Iterator[str]:
    for each in command.get_params(context):
        if each.param_type_name == "option":
            yield from each.opts


def _verb_with(option: str, context: Any) -> str:
    """Return the verb on the command line, if the option before it is one of its own."""
    words = (each for each in sys.argv[1:] if each in context.command.commands)
    verb = next(words, "")
    if not verb:
        return ""
    command = context.command.commands[verb]
    return verb if option in _options_of(command, context) else ""


def _wrong_value(error: Any, context: Any) -> tuple[str, str]:
    parameter = error.param
    message = re.sub(r"^(Value error|Input should be), ?", "", error.message).removesuffix(".")
    message = message[:1].lower() + message[1:] if message.startswith("Input") else message
    name = "the value" if parameter is None else _shown(parameter, context)
    choices = re.findall(r"'([^']*)'", message.partition("is not one of")[2])
    wrong = re.match(r"'([^']*)'", message)
    close = get_close_matches(wrong[1], choices, n=1) if wrong and choices else []
    fix = f"did you mean {close[0]}?" if close else ""
    return f"{name}: {message}", fix or (f"write one of {', '.join(choices)}" if choices else "")


def _shown(parameter: Any, context: Any) -> str:
    """Return what the user wrote: the option, the variable in its place, or the argument."""
    source = None if context is None else context.get_parameter_source(parameter.name)
    if getattr(source, "name", "") == "ENVIRONMENT" and parameter.envvar:
        return f"${parameter.envvar}"
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.make_metavar(context)).strip("{}[]")


def _example(context: Any) -> str:
    """Return the first example of the verb's help."""
    text = "" if context is None else context.command.help or ""
    match = re.search(r"^\s*(swe-rollout .*)$", text, re.MULTILINE)
    return f"for example `{match[1]}`" if match else ""


def _one_word(extra: str, context: Any) -> str:
    words = sys.argv[1:]
    at = words.index(extra) if extra in words else 0
    if at > 1 and words[at - 2] == "--set" and "=" not in words[at - 1]:
        return f"write it without a blank: `--set {words[at - 1]}={extra}`"
    takes_image = context is not None and "--image" in _options_of(context.command, context)
    if takes_image and re.fullmatch(r"\S+[:/@]\S+", extra):
        return f"did you mean --image {extra}?"
    return "put what belongs together in quotes"
