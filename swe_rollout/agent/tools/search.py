"""The `search` tool: text in files, and files and folders by name; what is not shown is counted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from swe_rollout.agent.tools.base import (
    CONFIGURATION,
    Parameter,
    ParameterType,
    Tool,
    ToolContext,
    ToolError,
    ToolSpec,
    cut_middle,
    text_argument,
)
from swe_rollout.agent.tools.grep import (
    SKIPPED,
    Excerpt,
    Found,
    Place,
    Text,
    excerpts,
    find,
    matching_names,
    search,
    shown_path,
)
from swe_rollout.errors import InternalError
from swe_rollout.sandbox.base import Sandbox
from swe_rollout.types.turn import Observation

MOST_RESULTS: Final = 1000
_MOST_AROUND: Final = 20
_MIN_S: Final = 1.0
_GLOB: Final = re.compile(r"[*?\[]")
SKIPS: Final = f"Not searched: {', '.join(SKIPPED)} below the path, and binary files."


@dataclass(frozen=True, config=CONFIGURATION)
class Search(Tool):
    """Searches a folder or file of the sandbox; images need no more than busybox."""

    max_results: Annotated[int, Field(ge=1, le=MOST_RESULTS)] = 100
    """Shown at most where the policy gives no number."""
    context_lines: Annotated[int, Field(ge=0, le=_MOST_AROUND)] = 2
    """Shown before and after a matching line where the policy gives no number."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            "search",
            "Search files.\n"
            "* search_text: lines that have the text `pattern` in the files below `path`.\n"
            "* search_files, search_dir: files, or folders, whose name has `pattern`, or is like "
            "it where it has wildcards (*.py, src/**/test_*.py).\n"
            f"All results are counted, the first ones shown. {SKIPS}",
            (
                Parameter(
                    "command",
                    "What to search for.",
                    required=True,
                    choices=("search_text", "search_files", "search_dir"),
                ),
                Parameter("pattern", "The text or name; upper and lower case are the same unless "
                          "case_sensitive.", required=True),
                Parameter("path", "The folder or file to search, such as src.", required=True),
                Parameter("case_sensitive", "Whether case matters; default false.",
                          ParameterType.BOOLEAN),
                Parameter("regex", "Whether the pattern is a POSIX extended regular expression; "
                          "default false.", ParameterType.BOOLEAN),
                Parameter("whole_words", "search_text: whether only whole words match; default "
                          "false.", ParameterType.BOOLEAN),
                Parameter("max_results", f"How many results to show; default {self.max_results}.",
                          ParameterType.INTEGER),
                Parameter("file_extensions", "Only files that end so, such as [py, toml].",
                          ParameterType.STRINGS),
                Parameter("context_lines", "search_text: lines to show before and after each; "
                          f"default {self.context_lines}.", ParameterType.INTEGER),
            ),
        )  # fmt: skip

    async def run(
        self, arguments: Mapping[str, object], sandbox: Sandbox, context: ToolContext
    ) -> Observation:
        pattern = text_argument(arguments, "pattern") or ""
        path = text_argument(arguments, "path") or "."
        ignore_case = arguments.get("case_sensitive") is not True
        regex = arguments.get("regex") is True
        try:
            most = number(arguments, "max_results", 1, MOST_RESULTS) or self.max_results
            names = tuple(
                f"*.{each.lstrip('*.')}" for each in strings(arguments, "file_extensions")
            )
            match text_argument(arguments, "command"):
                case "search_text":
                    around = number(arguments, "context_lines", 0, _MOST_AROUND)
                    words = arguments.get("whole_words") is True
                    return await search_text(
                        Text(pattern, regex=regex, ignore_case=ignore_case, whole_words=words),
                        Place(path, names),
                        sandbox,
                        context,
                        most=most,
                        around=self.context_lines if around is None else around,
                    )
                case "search_files" | "search_dir" as command:
                    return await search_names(
                        Text(pattern, regex=regex, ignore_case=ignore_case),
                        Place(path, names),
                        sandbox,
                        context,
                        most=most,
                        folders=command == "search_dir",
                    )
                case command:
                    raise InternalError(f"the command {command} passed the schema")
        except ToolError as error:
            return Observation(cut_middle(f"error: {error}", context.output_bytes))


async def search_text(
    text: Text,
    place: Place,
    sandbox: Sandbox,
    context: ToolContext,
    *,
    most: int,
    around: int = 0,
) -> Observation:
    """Search for a text; ToolError for a pattern or path that is wrong."""
    found = await search(sandbox, text, place, timeout_s=context.timeout_s)
    left_s = _left_s(found, context)
    shown = await excerpts(sandbox, text, found, most=most, around=around, timeout_s=left_s)
    lines = sum(excerpt.matches for excerpt in shown)
    head = f"{_count(found.total, 'matching line')} in {_count(len(found.counts), 'file')}"
    if lines < found.total:
        head += f"; the first {lines}, in {_count(len(shown), 'file')}, are shown"
    return _observation(head, found, _texts(shown, sandbox), context)


async def search_names(
    text: Text,
    place: Place,
    sandbox: Sandbox,
    context: ToolContext,
    *,
    most: int,
    folders: bool = False,
) -> Observation:
    """Search for files or folders by name; ToolError for a pattern or path that is wrong."""
    by_wildcards = _GLOB.search(text.pattern) and not text.regex
    found = await find(
        sandbox,
        Place(place.path, (text.pattern,) if by_wildcards else ()),
        folders=folders,
        ignore_case=text.ignore_case,
        timeout_s=context.timeout_s,
    )
    ends = tuple(each.removeprefix("*") for each in place.names)
    paths = [path for path in found.counts if not ends or folders or path.endswith(ends)]
    if not by_wildcards and paths:
        left_s = _left_s(found, context)
        paths = await matching_names(sandbox, text, paths, timeout_s=left_s)
    head = _count(len(paths), "folder" if folders else "file")
    if len(paths) > most:
        head += f"; the first {most} are shown"
    shown = [shown_path(path, sandbox.workdir) for path in paths[:most]]
    return _observation(head, found, shown, context)


def number(arguments: Mapping[str, object], name: str, least: int, most: int) -> int | None:
    """Return an integer argument; ToolError where it is outside of its bounds."""
    value = arguments.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or not least <= value <= most:
        raise ToolError(f"{name} must be from {least} to {most}")
    return value


def strings(arguments: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return a list argument; empty when it was not given."""
    value = arguments.get(name)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _left_s(found: Found, context: ToolContext) -> float:
    return min(context.timeout_s, max(_MIN_S, context.timeout_s - found.took_s))


def _texts(shown: Sequence[Excerpt], sandbox: Sandbox) -> list[str]:
    return [
        "\n".join([shown_path(excerpt.path, sandbox.workdir), *excerpt.lines]) for excerpt in shown
    ]


def _observation(
    head: str, found: Found, parts: Sequence[str], context: ToolContext
) -> Observation:
    text = "\n".join([head, *(f"note: {each}" for each in found.problems), *parts])
    shown = cut_middle(text, context.output_bytes)
    return Observation(shown, truncated=shown != text)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
