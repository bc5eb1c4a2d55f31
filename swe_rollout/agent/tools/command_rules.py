"""CommandRules: commands that a job asks the policy not to run.

They are rules of conduct, not a security boundary: scripts are read as simple shell, and a policy
that wants to get around the rules can. The sandbox prevents what must not happen.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_WORDS_BEFORE: Final = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "time", "!", "{", "exec", "command"}
)
_WORD: Final = re.compile(r"""(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\]|['"\\])+""", re.DOTALL)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_HERE_DOCUMENT: Final = re.compile(r"<<-?\s*\\?(['\"]?)([A-Za-z_]\w*)\1")
_TOKEN: Final = re.compile(
    r"""(?P<comment>(?:(?<=[\s;&|()])|^)\#[^\n]*)
    | (?P<end>&&|\|\||[;&|\n(){}`]|\$\()
    | (?P<quoted>'[^']*'|"(?:[^"\\]|\\.)*")
    | (?P<here><<<)
    | (?P<document><<-?[ \t]*\\?['"]?[A-Za-z_]\w*['"]?)
    | (?P<space>[ \t]+)
    | (?P<plain>\\.|[^\s;&|(){}`'"\\$<\#]+|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class CommandRules:
    """Programs that no script may run, and patterns that none of its commands may match."""

    programs: tuple[str, ...] = ()
    """Names, such as `git`; the name of a program's path is its last part."""
    patterns: tuple[re.Pattern[str], ...] = ()
    """Patterns to search for in each command."""

    def refusal(self, script: str) -> str:
        """Return which command breaks which rule, worded for the policy; empty if none."""
        if not self.programs and not self.patterns:
            return ""
        for command in commands(script):
            program = program_of(command)
            if program in self.programs:
                return f"{program} is not to be used in this task; nothing was run"
            for pattern in self.patterns:
                if pattern.search(command):
                    return (
                        f"the command {command[:80]!r} is not to be used in this task; nothing was "
                        "run"
                    )
        return ""


NO_RULES: Final = CommandRules()


def commands(script: str) -> Iterator[str]:
    """Yield the simple commands of a shell script, including those in substitutions.

    Comments and here-documents are not commands. Quoted text is not read as commands.
    """
    parts: list[str] = []
    documents: list[str] = []
    at = 0
    while at < len(script):
        found = _TOKEN.match(script, at)
        if found is None:
            break
        at = found.end()
        match found.lastgroup:
            case "end":
                yield from _joined(parts)
                parts = []
                if found[0] == "\n" and documents:
                    at = _after_documents(script, at, documents)
                    documents = []
            case "comment":
                pass
            case "document":
                if name := _HERE_DOCUMENT.match(found[0]):
                    documents.append(name[2])
                parts.append(found[0])
            case _:
                parts.append(found[0])
    yield from _joined(parts)


def program_of(command: str) -> str:
    """Return the name of the program that a simple command runs; empty if it runs none."""
    for found in _WORD.finditer(command):
        word = found[0]
        if word in _WORDS_BEFORE or _ASSIGNMENT.match(word):
            continue
        return posixpath.basename(re.sub(r"[\\'\"]", "", word))
    return ""


def _joined(parts: list[str]) -> Iterator[str]:
    if command := "".join(parts).strip():
        yield command


def _after_documents(script: str, at: int, names: list[str]) -> int:
    for name in names:
        end = re.compile(rf"^\t*{name}$\n?", re.MULTILINE).search(script, at)
        at = end.end() if end else len(script)
    return at
