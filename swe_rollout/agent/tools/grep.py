"""Search the files of a sandbox with nothing but `sh`, `find`, `grep` and `cut`, as in busybox.

The numbers are of everything that was searched, whatever is shown of it; a search that was not
whole says why.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from swe_rollout.agent.off_loop import off_loop
from swe_rollout.agent.tools.base import ToolError, readable
from swe_rollout.agent.tools.marks import new_mark
from swe_rollout.agent.tools.paths import PathKind, look
from swe_rollout.sandbox.base import ExecResult, Sandbox

SKIPPED: Final = (
    *(".git", ".hg", ".svn", ".bzr", ".tox", ".venv", "node_modules"),
    *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
)
"""Folders below the one that is searched in which nothing is looked for."""
_KERNEL: Final = ("/proc", "/sys", "/dev")
LINE_BYTES: Final = 400
"""Shown of one line."""
_MAX_PATTERN: Final = 4096
_LISTED_BYTES: Final = 4 << 20
_PATH_BYTES: Final = 64 << 10
_BAD_PATTERN: Final = 3
_LINE: Final = re.compile(rb"(\d{1,15})([:-])(.*)", re.DOTALL)

# "$@": where, and which files, in find's words. Flags and the pattern are variables, so that
# nothing of them is shell.
_COUNT: Final = rf"""
printf x | grep -q $FLAGS -e "$PATTERN" >/dev/null
[ $? -lt 2 ] || exit {_BAD_PATTERN}
if printf x | grep -qI x 2>/dev/null; then FLAGS="$FLAGS -I"; fi
find "$@" -exec grep -cH $FLAGS -e "$PATTERN" -- {{}} + | LC_ALL=C grep -v ':0$'
exit 0
"""
_NAMES: Final = rf"""
printf x | grep -q $FLAGS -e "$PATTERN" >/dev/null
[ $? -lt 2 ] || exit {_BAD_PATTERN}
if printf x | grep -qa x 2>/dev/null; then FLAGS="$FLAGS -a"; fi
grep -n $FLAGS -e "$PATTERN" | cut -d : -f 1
"""
_EXCERPT: Final = r"""
if printf x | grep -qI x 2>/dev/null; then FLAGS="$FLAGS -I"; fi
for file; do
    printf '\n%s\n' "$MARK"
    grep -n $FLAGS $CONTEXT -e "$PATTERN" -- "$file" | cut -b "1-$BYTES"
done
"""


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is looked for in files."""

    pattern: str
    regex: bool = False
    """Whether it is an extended regular expression of POSIX, with `\\d`, `\\s` and `\\w`."""
    ignore_case: bool = False
    whole_words: bool = False

    def __post_init__(self) -> None:
        """Raises ToolError for a pattern that no line can hold, or that is too long."""
        if not self.pattern or set(self.pattern) & {"\n", "\0"}:
            raise ToolError("the pattern must be one line of text")
        if len(self.pattern.encode()) > _MAX_PATTERN:
            raise ToolError(f"the pattern has over {_MAX_PATTERN} bytes")

    def environment(self) -> dict[str, str]:
        """Return the variables of a script that searches for it."""
        flags = ["-E" if self.regex else "-F"]
        flags += ["-i"] * self.ignore_case + ["-w"] * self.whole_words
        # Bytes, so that files in any encoding are text; letters of other scripts have no case then.
        has_case = self.ignore_case and not self.pattern.isascii()
        return {
            "FLAGS": " ".join(flags),
            "PATTERN": posix_regex(self.pattern) if self.regex else self.pattern,
            "LC_ALL": "C.UTF-8" if has_case else "C",
        }


@dataclass(frozen=True, slots=True)
class Place:
    """Files below a path, or a single file."""

    path: str
    """As the policy gave it."""
    names: tuple[str, ...] = ()
    """Patterns, such as `*.py`, of which the file's name has one; with a `/`, the end of its path
    has. None: all files."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to: matching lines by file, or the files alone."""

    root: str
    counts: dict[str, int]
    """By absolute path, sorted."""
    problems: tuple[str, ...] = ()
    """What kept the search from being whole, for the policy to read."""
    took_s: float = 0.0

    @property
    def total(self) -> int:
        """The number of matching lines."""
        return sum(self.counts.values())


@dataclass(slots=True)
class Excerpt:
    """Lines of one file around matches."""

    path: str
    lines: list[str] = field(default_factory=list)
    matches: int = 0

    def add(self, raw: bytes) -> None:
        """Add a line as grep writes it; what is none is left out."""
        if raw == b"--" and self.lines:
            self.lines.append("   ...")
        if (found := _LINE.match(raw)) is None:
            return
        text, is_match = found[3], found[2] == b":"
        more = " [...]" if len(text) > LINE_BYTES else ""
        self.matches += is_match
        self.lines.append(f"{int(found[1]):6}{readable(found[2] + text[:LINE_BYTES])}{more}")


async def search(sandbox: Sandbox, text: Text, place: Place, *, timeout_s: float) -> Found:
    """Count the lines with a text in each file. ToolError for a path or a pattern that is wrong."""
    root, where = await _where(sandbox, place, "f", timeout_s=timeout_s)
    result = await _run(sandbox, _COUNT, where, text.environment(), timeout_s=timeout_s)
    _require_pattern(result)
    return Found(
        root, _counts(result.stdout, root), _problems(result, timeout_s), result.duration_s
    )


async def find(
    sandbox: Sandbox, place: Place, *, folders: bool = False, ignore_case: bool, timeout_s: float
) -> Found:
    """Find files, or folders, by their names. ToolError for a path that is wrong."""
    root, where = await _where(
        sandbox, place, "d" if folders else "f", ignore_case=ignore_case, timeout_s=timeout_s
    )
    script = r"""find "$@" -exec printf '%s\0' {} +"""
    result = await _run(sandbox, script, where, {"LC_ALL": "C"}, timeout_s=timeout_s)
    counts = await off_loop(_paths, result.stdout)
    return Found(root, counts, _problems(result, timeout_s), result.duration_s)


async def matching_names(
    sandbox: Sandbox, text: Text, paths: Sequence[str], *, timeout_s: float
) -> list[str]:
    """Return the paths whose last part has a text. ToolError for a pattern that is wrong."""
    names = "\n".join(path.rpartition("/")[2].replace("\n", "?") for path in paths) + "\n"
    result = await sandbox.exec(
        ["/bin/sh", "-c", _NAMES],
        env=text.environment(),
        stdin=names.encode("utf-8", "surrogateescape"),
        timeout_s=timeout_s,
        max_output=_LISTED_BYTES,
    )
    _require_pattern(result)
    numbers = [int(each) for each in result.stdout.split(b"\n")[:-1] if each.isdigit()]
    return [paths[number - 1] for number in numbers if 1 <= number <= len(paths)]


async def excerpts(
    sandbox: Sandbox, text: Text, found: Found, *, most: int, around: int, timeout_s: float
) -> list[Excerpt]:
    """Return the first `most` matching lines of what was found, each with `around` lines."""
    files, matches, size = list[str](), 0, 0
    for path, count in found.counts.items():
        if matches >= most or size > _PATH_BYTES:
            break
        files.append(path)
        matches, size = matches + count, size + len(path)
    if not files:
        return []
    mark = new_mark(16)
    environment = {
        **text.environment(),
        "CONTEXT": f"-m {most}" + (f" -A {around} -B {around}" if around else ""),
        "BYTES": str(LINE_BYTES + 32),
        "MARK": mark,
    }
    result = await _run(sandbox, _EXCERPT, files, environment, timeout_s=timeout_s)
    return list(_excerpts(result.stdout.split(f"\n{mark}\n".encode())[1:], files, most))


def posix_regex(pattern: str) -> str:
    r"""Write the classes `\d`, `\s`, `\w` and `(?:` as POSIX has them."""
    inside = {"d": "0-9", "s": "[:space:]", "w": "[:alnum:]_"}
    parts: list[str] = []
    in_class = False
    for found in re.finditer(r"\\.|\(\?:|\[\^?\]?|\]|[^\\()\[\]]+|.", pattern):
        part = found[0]
        if len(part) == 2 and part[0] == "\\" and part[1].lower() in inside:  # noqa: PLR2004 - \x
            negated, known = part[1].isupper(), inside[part[1].lower()]
            if in_class:
                parts.append(part if negated else known)
            else:
                parts.append(f"[{'^' if negated else ''}{known}]")
        elif part == "(?:" and not in_class:
            parts.append("(")
        else:
            in_class = part.startswith("[") or (in_class and part != "]")
            parts.append(part)
    return "".join(parts)


def shown_path(path: str, workdir: str) -> str:
    """Return a path as the policy reads it: relative to the folder where its commands start."""
    below = path.removeprefix(workdir.rstrip("/") + "/")
    return readable(below.encode("utf-8", "surrogateescape"))


async def _where(
    sandbox: Sandbox, place: Place, kind: str, *, ignore_case: bool = False, timeout_s: float
) -> tuple[str, list[str]]:
    """Return the path that is searched, and find's words for what is looked at in it."""
    if any(not name or set(name) & {"\0", "\n"} for name in (place.path, *place.names)):
        raise ToolError("a path or name is empty or holds a newline or NUL character")
    info = await look(sandbox, place.path, timeout_s=timeout_s)
    root = info.path if ".." in info.path.split("/") else posixpath.normpath(info.path)
    match info.kind:
        case PathKind.MISSING:
            raise ToolError(f"{place.path} does not exist")
        case PathKind.OTHER:
            raise ToolError(f"{place.path} is neither a file nor a directory, or did not answer")
        case PathKind.FILE:
            return root, [root, "-type", kind]
        case PathKind.DIRECTORY:
            pass
    skipped = _any("-name", SKIPPED) + (["-o", *_any("-path", _KERNEL)] if root == "/" else [])
    words = ["-mindepth", "1", "-type", "d", "(", *skipped, ")", "-prune", "-o", "-type", kind]
    if place.names:
        by_name = [name for name in place.names if "/" not in name]
        by_path = [f"*/{name.lstrip('/')}" for name in place.names if "/" in name]
        case = "i" if ignore_case else ""
        either = [_any(f"-{case}name", by_name), _any(f"-{case}path", by_path)]
        tests = [each for each in either if each]
        words += ["(", *(tests[0] if len(tests) == 1 else [*tests[0], "-o", *tests[1]]), ")"]
    # A link to a folder is searched when it is named itself.
    return root, ["-H", root, *words]


def _require_pattern(result: ExecResult) -> None:
    if result.exit_code == _BAD_PATTERN and not result.timed_out:
        why = readable(result.stderr).strip().removeprefix("grep: ")[:200]
        raise ToolError(f"the pattern is no regular expression: {why}")


def _paths(output: bytes) -> dict[str, int]:
    paths = output.decode("utf-8", "surrogateescape").split("\0")[:-1]
    return dict.fromkeys(sorted(paths), 1)


def _any(test: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in ("-o", test, value)][1:]


async def _run(
    sandbox: Sandbox,
    script: str,
    arguments: Sequence[str],
    environment: dict[str, str],
    *,
    timeout_s: float,
) -> ExecResult:
    return await sandbox.exec(
        ["/bin/sh", "-c", script, "sh", *arguments],
        env=environment,
        timeout_s=timeout_s,
        max_output=_LISTED_BYTES,
    )


def _counts(output: bytes, root: str) -> dict[str, int]:
    start = root.rstrip("/").encode("utf-8", "surrogateescape")
    counts: dict[str, int] = {}
    pending = b""
    for line in output.split(b"\n"):
        # A path may hold newlines; each begins with the folder that was searched.
        whole = line if line.startswith(start) else pending + b"\n" + line
        path, _, count = whole.rpartition(b":")
        if path and count.isdigit() and len(count) < 16:  # noqa: PLR2004 - digits of a count
            counts[path.decode("utf-8", "surrogateescape")] = int(count)
            pending = b""
        else:
            pending = whole
    return dict(sorted(counts.items()))


def _problems(result: ExecResult, timeout_s: float) -> tuple[str, ...]:
    problems: list[str] = []
    if result.timed_out:
        problems.append(f"the search was stopped after {timeout_s:g} s: there may be more")
    if result.stdout_bytes > len(result.stdout):
        problems.append(f"the list of results is over {_LISTED_BYTES} bytes: there are more")
    if lines := result.stderr.count(b"\n"):
        more = " or more" if result.stderr_bytes > len(result.stderr) else ""
        first = readable(result.stderr.partition(b"\n")[0])[:160]
        problems.append(f"{lines}{more} could not be read ({first})")
    return tuple(problems)


def _excerpts(outputs: Sequence[bytes], files: Sequence[str], most: int) -> Iterator[Excerpt]:
    for path, output in zip(files, outputs, strict=False):
        excerpt = Excerpt(path)
        for raw in output.split(b"\n"):
            if excerpt.matches == most and re.match(rb"\d+:", raw):
                break
            excerpt.add(raw)
        most -= excerpt.matches
        if excerpt.lines:
            yield excerpt
        if not most:
            return
