"""Look for traces of a task's fix that a build or an author left in the image.

Found by content: untracked files with lines that only the fix has, in whatever form (`build/`,
`.orig`, a patch, a cache), bytecode compiled from the fixed source, clones and bundles of the
repository, and unreachable git objects. Found by name: a second, newer version of the package. The
search is bounded in files, bytes and time. Used by `copies`.
"""

from __future__ import annotations

import posixpath
import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import structlog

from swe_rollout.errors import SandboxError
from swe_rollout.sandbox.base import Sandbox

log = structlog.get_logger()
_SEARCH_S: Final = 300.0
_MOST_LINES: Final = 40
_SHORTEST_LINE: Final = 16
"""The shortest line that identifies a fix; shorter ones may occur anywhere."""
_LONGEST_LINE: Final = 400
_LEAST_CHARS: Final = 40
"""How many characters of matching lines at least make a file a copy."""
_MOST_FILES: Final = 200
_LARGEST_BYTES: Final = 4 << 20
_MUCH: Final = 0.5
_ENOUGH: Final = 3
_SHORTEST_WORD: Final = 5
_MOST_PATHS_BYTES: Final = 16 << 20
_LEFT: Final = ("orig", "rej", "bak", "old", "save", "swp", "patch", "diff", "txt", "json", "log")
_GENERIC: Final = re.compile(
    r"(return|yield|raise|import|from|if|elif|else|try|except|finally|pass|break|continue|assert)?"
    r"[\s\w.,()\[\]{}:*=\"'#-]{0,12}"
)
_WORD: Final = re.compile(rf"[A-Za-z_]\w{{{_SHORTEST_WORD - 1},}}")
_VERSION: Final = re.compile(rb"^Version:\s*(\S+)", re.MULTILINE)


def distinctive(added: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the lines that identify copies of a fix: long ones that the base lacks."""
    found = (
        line
        for line in sorted(added, key=lambda line: (-len(line), line))
        if _SHORTEST_LINE <= len(line) <= _LONGEST_LINE
        and line not in known
        and not _GENERIC.fullmatch(line)
    )
    return tuple(line for line, _ in zip(found, range(_MOST_LINES), strict=False))


def holds(text: str, lines: Collection[str]) -> bool:
    """Return whether a text, such as a patch, has too many of the lines for coincidence."""
    own = {line.lstrip("+-<> \t").rstrip() for line in text.splitlines()}
    matched = [line for line in lines if line in own or line.lstrip("+-<> \t") in own]
    needed = max(_MUCH * len(lines), min(_ENOUGH, len(lines)))
    return len(matched) >= needed and sum(map(len, matched)) >= _LEAST_CHARS


def new_words(added: Iterable[str], base: str) -> frozenset[str]:
    """Return the names and words that a fix adds to a file."""
    return frozenset(word for line in added for word in _WORD.findall(line) if word not in base)


def is_compiled_from_fix(data: bytes, words: Collection[str]) -> bool:
    """Return whether bytecode has the names that the fix adds, so was compiled from fixed code."""
    found = sum(word.encode() in data for word in words)
    return bool(words) and found >= max(_MUCH * len(words), min(2, len(words)))


async def find_lines(
    sandbox: Sandbox, base: str, lines: tuple[str, ...], extensions: Collection[str]
) -> tuple[str, ...]:
    """Return the files that are not in the commit `base` and contain lines of the fix."""
    if sum(map(len, lines)) < _LEAST_CHARS:
        return ()
    path = f"/tmp/{secrets.token_hex(8)}"  # noqa: S108 (in the sandbox)
    await sandbox.write_file(path, "".join(f"{line}\n" for line in lines).encode())
    names = [f"*.{ending}" for ending in (*sorted(extensions), *_LEFT)]
    wanted = " -o ".join(f"-name '{name}'" for name in (*names, "*~", "*.py.*"))
    script = (
        r"find / \( -path /proc -o -path /sys -o -path /dev -o -path '*/.git/objects' \) -prune"
        rf" -o -type f -size -{_LARGEST_BYTES >> 10}k \( {wanted} \) -print0 2>/dev/null |"
        f" xargs -0 grep -lF -f {path} -- 2>/dev/null; rm -f {path}"
    )
    done = await sandbox.exec(script, timeout_s=_SEARCH_S, max_output=_MOST_PATHS_BYTES)
    if done.timed_out:
        log.warning("image_searched_in_part", why=f"it took longer than {_SEARCH_S:g} s")
    tracked = await _tracked(sandbox, base)
    found = [each for each in done.stdout.decode(errors="replace").splitlines() if each != path]
    left = [each for each in found if each not in tracked][:_MOST_FILES]
    return tuple(
        [
            each
            for each in left
            if holds((await read(sandbox, each)).decode(errors="replace"), lines)
        ]
    )


async def find_history(sandbox: Sandbox, base: str, lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return clones and bundles of the repository, and unreachable objects with the fix."""
    done = await sandbox.exec(
        _script().read_text(),
        env={"BASE": base},
        stdin="".join(f"{line}\n" for line in lines).encode(),
        timeout_s=_SEARCH_S,
    )
    return tuple(done.stdout.decode(errors="replace").splitlines())


async def newer_versions(sandbox: Sandbox, metadata: Iterable[str]) -> tuple[str, ...]:
    """Return the metadata files that name a later version than another of them."""
    versions: dict[str, tuple[int, ...]] = {}
    for path in metadata:
        if match := _VERSION.search(await read(sandbox, path)):
            versions[path] = tuple(_numbers(match[1].decode(errors="replace")))
    oldest = min(versions.values(), default=())
    return tuple(sorted(path for path, version in versions.items() if version > oldest))


def metadata_patterns(names: Iterable[str]) -> Iterator[str]:
    """Yield path patterns for the metadata of installed packages."""
    for name in names:
        yield f"*/{name}-[0-9]*.dist-info/METADATA"
        yield f"*/{name}-[0-9]*.egg-info/PKG-INFO"
        yield f"*/{name}.egg-info/PKG-INFO"


def _numbers(version: str) -> list[int]:
    """Return the numbers of a release, without a suffix such as `.dev1`."""
    match = re.match(r"(?:\d+!)?v?(\d+(?:\.\d+){0,5})", version)
    return [int(part[:9]) for part in match[1].split(".")] if match else []


async def _tracked(sandbox: Sandbox, base: str) -> frozenset[str]:
    done = await sandbox.exec(
        ["git", "ls-tree", "-r", "-z", "--name-only", "--full-tree", base],
        timeout_s=_SEARCH_S,
        max_output=_MOST_PATHS_BYTES,
    )
    names = done.stdout.decode(errors="replace").split("\0") if done.ok else []
    return frozenset(posixpath.join(sandbox.workdir, name) for name in names)


async def read(sandbox: Sandbox, path: str) -> bytes:
    """Read a file; return nothing when it can't be read or is too large."""
    try:
        return await sandbox.read_file(path, max_bytes=_LARGEST_BYTES)
    except (OSError, SandboxError):
        return b""


def _script() -> Traversable:
    return files("swe_rollout.grading") / "scripts" / "clones.sh"
