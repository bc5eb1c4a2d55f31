"""Glob: match paths with a pattern that may contain `**`, in time linear in their length."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from swe_rollout.agent.tools.base import ToolError

_MAX_LENGTH: Final = 1000
_MAX_ALTERNATIVES: Final = 64
_MAX_STARS: Final = 16
"""Maximum number of `**` in one pattern."""
TYPES: Final[Mapping[str, str]] = {
    "c": "*.{c,h}",
    "cpp": "*.{cpp,cc,cxx,hpp,hh,hxx,h,inl}",
    "cs": "*.cs",
    "css": "*.{css,scss,sass,less}",
    "go": "*.go",
    "html": "*.{html,htm,ejs}",
    "java": "*.{java,jsp}",
    "js": "*.{js,jsx,cjs,mjs,vue}",
    "json": "*.json",
    "kotlin": "*.{kt,kts}",
    "lua": "*.lua",
    "make": "{Makefile,makefile,GNUmakefile,*.mk,*.mak}",
    "md": "*.{md,markdown,mdx}",
    "php": "*.php",
    "py": "*.{py,pyi}",
    "ruby": "{*.rb,*.rake,Gemfile,Rakefile}",
    "rust": "*.rs",
    "scala": "*.{scala,sbt}",
    "sh": "*.{sh,bash,zsh,ksh}",
    "sql": "*.sql",
    "swift": "*.swift",
    "toml": "*.toml",
    "ts": "*.{ts,tsx,cts,mts}",
    "txt": "*.txt",
    "xml": "*.{xml,xsd,xsl,svg}",
    "yaml": "*.{yaml,yml}",
}
"""Globs of file types, by ripgrep's names for them."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern: `*` and `?` within a name, `**` for any folders, `[…]`, and `{a,b}`."""

    alternatives: tuple[tuple[re.Pattern[str] | None, ...], ...]
    """The segments of each alternative; None stands for `**`."""

    @classmethod
    def of(cls, pattern: str, *, anywhere: bool = False, ignores_case: bool = False) -> Glob:
        """Compile a pattern; with `anywhere`, one without a slash matches names at any depth.

        Raises ToolError for a pattern that is empty, too long, or has too many alternatives.
        """
        if not pattern or "\0" in pattern or len(pattern) > _MAX_LENGTH:
            raise ToolError(f"a glob has 1 to {_MAX_LENGTH} characters, none of them NUL")
        return cls(
            tuple(
                _segments(
                    f"**/{each}" if anywhere and "/" not in each else each,
                    re.IGNORECASE if ignores_case else re.NOFLAG,
                )
                for each in _alternatives(pattern)
            )
        )

    def matches(self, path: str) -> bool:
        """Return whether a relative path matches."""
        names = path.split("/")
        return any(_matches(segments, names) for segments in self.alternatives)


def _matches(segments: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    """Match name by name, tracking every possible number of segments used so far."""
    states = _past_stars(segments, {0})
    for name in names:
        following = {
            state + (segment is not None)
            for state, segment in enumerate(segments)
            if state in states and (segment is None or segment.match(name))
        }
        states = _past_stars(segments, following)
    return len(segments) in states


def _past_stars(segments: Sequence[re.Pattern[str] | None], states: set[int]) -> set[int]:
    """Add the states after `**`, which may match no folder at all."""
    reached = set(states)
    for state, segment in enumerate(segments):
        if segment is None and state in reached:
            reached.add(state + 1)
    return reached


def _segments(pattern: str, flags: re.RegexFlag) -> tuple[re.Pattern[str] | None, ...]:
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    if parts.count("**") > _MAX_STARS:
        raise ToolError(f"a glob has at most {_MAX_STARS} parts **")
    # `translate` makes patterns that do not backtrack.
    return tuple(
        None if part == "**" else re.compile(fnmatch.translate(re.sub(r"\*+", "*", part)), flags)
        for part in parts
    )


def _alternatives(pattern: str) -> list[str]:
    """Expand `{a,b}`; braces may be nested, and an unclosed one is an ordinary character."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        current = todo.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", current)
        if found is None:
            done.append(current)
        else:
            head, tail = current[: found.start()], current[found.end() :]
            todo += [f"{head}{choice}{tail}" for choice in found[1].split(",")]
        if len(done) + len(todo) > _MAX_ALTERNATIVES:
            raise ToolError(f"a glob has at most {_MAX_ALTERNATIVES} alternatives in braces")
    return done
