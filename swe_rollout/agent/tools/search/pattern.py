r"""Patterns that `grep` can search for: plain texts, and regular expressions as ripgrep takes them.

A regular expression is translated to POSIX syntax. What POSIX can't express is refused with a
reason, never approximated. Text is bytes: `\w` and letter case are those of ASCII, and other
characters match themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from swe_rollout.agent.tools.base import ToolError
from swe_rollout.agent.tools.lines import encoded
from swe_rollout.agent.tools.search.char_class import LINE_END, class_of_escape, read_class

_MAX_LENGTH: Final = 2000
_MAX_TEXT_BYTES: Final = 4096
_MAX_REPEATS: Final = 255
"""Maximum count of a repetition: POSIX guarantees no more."""
_MAX_EXPANSION: Final = 10_000
"""Maximum product of all repetition counts, because `grep` expands them in memory."""
_LAST_CHARACTER: Final = 0x10FFFF
_SPECIAL: Final = frozenset("\\.[()*+?{|^$")
_CHARACTERS: Final = dict(zip("tnrfva", "\t\n\r\f\v\a", strict=True))
_ASSERTIONS: Final = {"A": "^", "z": "$", "b": r"\b", "B": r"\B", "<": r"\<", ">": r"\>"}
_FLAGS: Final = re.compile(r"\(\?([imsu]+)\)")
_TOKEN: Final = re.compile(
    r"""(?P<hex>\\(?:x([0-9A-Fa-f]{2})|[xu]\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})))
    | (?P<escape>\\.?)
    | (?P<set>\[)
    | (?P<look_around>\(\?<?[=!])
    | (?P<open>\((?:\?(?:P?<[A-Za-z_]\w*>|:)|(?!\?)))
    | (?P<flags>\()
    | (?P<close>\))
    | (?P<counts>\{(?P<least>[0-9]{1,9}),?(?P<most>[0-9]{0,9})\})
    | (?P<quantifier>[*+?])
    | (?P<anchor>[\^$])
    | (?P<plain>[|.])
    | (?P<literal>.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """What `grep` searches for."""

    text: str
    is_fixed: bool = False
    """Whether it is plain text, not a POSIX extended regular expression."""
    ignores_case: bool = False
    whole_words: bool = False
    is_lazy: bool = False
    """Whether it contains `*?` or the like, which affects where a match ends."""
    is_multiline: bool = False
    """Whether to match it against whole files."""

    @property
    def options(self) -> list[str]:
        """The options of `grep`, including the pattern."""
        return [
            "-F" if self.is_fixed else "-E",
            *["-i"] * self.ignores_case,
            *["-w"] * self.whole_words,
            *["-z"] * self.is_multiline,
            *("-e", self.text),
        ]

    @property
    def env(self) -> dict[str, str]:
        """The environment of a command that searches for it.

        Text is bytes, so that files in any encoding are text; letters outside ASCII then have no
        case.
        """
        has_case = self.is_fixed and self.ignores_case and not self.text.isascii()
        return {"LC_ALL": "C.UTF-8" if has_case else "C", "GREP_OPTIONS": "", "GREP_COLORS": ""}


def plain(text: str, *, ignores_case: bool = False, whole_words: bool = False) -> Pattern:
    """Return the pattern of a text. Raises ToolError if it is too long or fits in no line."""
    if not text or set(text) & {"\n", "\0"}:
        raise ToolError("the pattern must be one line of text")
    if len(encoded(text, "pattern")) > _MAX_TEXT_BYTES:
        raise ToolError(f"the pattern has over {_MAX_TEXT_BYTES} bytes")
    return Pattern(text, is_fixed=True, ignores_case=ignores_case, whole_words=whole_words)


def translate(pattern: str, *, multiline: bool = False) -> Pattern:
    """Translate a regular expression. Raises ToolError if that is not possible.

    With `multiline`, it may match across line ends, and `.` matches them.
    """
    if len(pattern) > _MAX_LENGTH:
        raise ToolError(f"the pattern has over {_MAX_LENGTH} characters")
    encoded(pattern, "pattern")
    return _Translation(multiline=multiline).of(pattern)


def _refuse(why: str) -> NoReturn:
    raise ToolError(f"the pattern can't be used: {why}")


class _Translation:
    """One pattern, read from left to right."""

    def __init__(self, *, multiline: bool) -> None:
        self._multiline = multiline
        self._is_lazy = False
        self._done: list[str] = []
        self._open_groups = 0
        self._expansion = 1
        self._repeatable = False
        """Whether a quantifier may follow the last token."""

    def of(self, pattern: str) -> Pattern:
        flags = _FLAGS.match(pattern)
        at = flags.end() if flags else 0
        while found := _TOKEN.match(pattern, at):
            at = self._token(found)
        if self._open_groups:
            _refuse("a group is not closed")
        return Pattern(
            "".join(self._done),
            ignores_case=flags is not None and "i" in flags[1],
            is_lazy=self._is_lazy,
            is_multiline=self._multiline,
        )

    def _token(self, found: re.Match[str]) -> int:
        """Translate a token; return the start of the next one."""
        pattern, at = found.string, found.end()
        match found.lastgroup:
            case "hex":
                self._literal(_character(found))
            case "escape":
                self._escape(found[0][1:])
            case "set":
                characters, at = read_class(pattern, at)
                self._emit(characters.ere(multiline=self._multiline))
            case "look_around":
                _refuse("look-around is not supported")
            case "flags":
                _refuse("flags are supported at its beginning alone, such as (?i)")
            case "open" | "close":
                self._group(found[0])
            case "counts" | "quantifier":
                at = self._repeat(found)
            case "anchor":
                self._anchor(found[0], pattern[at : at + 1])
            case "plain":
                self._emit(found[0], repeatable=found[0] == ".")
            case _:
                self._literal(found[0])
        return at

    def _emit(self, text: str, *, repeatable: bool = True) -> None:
        self._done.append(text)
        self._repeatable = repeatable

    def _anchor(self, anchor: str, following: str) -> None:
        """Emit the start or end of a line; in a whole file, also the start or end of the file."""
        if not self._multiline:
            self._emit(anchor, repeatable=False)
            return
        if anchor == "$" and following not in {"", "|", ")"}:
            _refuse(r"with multiline, $ must be at its end; write \n")
        self._emit(f"({anchor}|{LINE_END})", repeatable=False)

    def _literal(self, character: str) -> None:
        if character == "\0" or (character == "\n" and not self._multiline):
            _refuse("it holds NUL, or a line end without multiline")
        if character == "\n":
            self._emit(LINE_END)
        elif character in _SPECIAL:
            self._emit(f"\\{character}")
        else:
            # A quantifier after several bytes needs a group around them.
            self._emit(character if character.isascii() else f"({character})")

    def _group(self, bracket: str) -> None:
        if bracket == ")" and not self._open_groups:
            _refuse(r"a ) without its (; write \) for the character")
        self._open_groups += -1 if bracket == ")" else 1
        self._emit(bracket[0], repeatable=bracket == ")")

    def _repeat(self, found: re.Match[str]) -> int:
        if not self._repeatable:
            _refuse("a quantifier has nothing to repeat")
        if found["counts"]:
            self._count(int(found["least"]), int(found["most"] or found["least"]))
        self._emit(found[0], repeatable=False)
        # The end of a match does not affect which lines match, so lazy is the same as greedy.
        is_lazy = found.string.startswith("?", found.end())
        self._is_lazy = self._is_lazy or is_lazy
        return found.end() + is_lazy

    def _count(self, least: int, most: int) -> None:
        if most > _MAX_REPEATS or least > most:
            _refuse(f"a count must be {{n}}, {{n,}} or {{n,m}} with n <= m <= {_MAX_REPEATS}")
        self._expansion *= max(1, most)
        if self._expansion > _MAX_EXPANSION:
            _refuse("its counts are too large together")

    def _escape(self, letter: str) -> None:
        match letter:
            case "d" | "D" | "w" | "W" | "s" | "S":
                self._emit(class_of_escape(letter).ere(multiline=self._multiline))
            case "":
                _refuse("it ends in a backslash")
            case "A" | "z" if self._multiline:
                _refuse(f"\\{letter} is not supported with multiline")
            case _ if letter in _ASSERTIONS:
                self._emit(_ASSERTIONS[letter], repeatable=False)
            case _ if letter.isalnum() and letter not in _CHARACTERS:
                _refuse(f"\\{letter} is not supported")
            case _:
                self._literal(_CHARACTERS.get(letter, letter))


def _character(found: re.Match[str]) -> str:
    code = int(next(filter(None, found.groups()[1:4])), 16)
    if code > _LAST_CHARACTER or 0xD800 <= code < 0xE000:  # noqa: PLR2004 - surrogates
        _refuse(f"{found[0]} is no character")
    return chr(code)
