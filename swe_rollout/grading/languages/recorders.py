"""Put the recorder of a language into a blind test file, whose lines stay where they are. Pure."""

from __future__ import annotations

import json
import re
from importlib.resources import files as resources
from typing import Final

from swe_rollout.grading.edits import HOLE
from swe_rollout.grading.languages.table import Language

_DIRECTIVES: Final = re.compile(
    r"(?:\s|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/|(?:'use [a-z ]+'|\"use [a-z ]+\");?)*"
)
_HASHBANG: Final = re.compile(r"(?:#![^\n]*\n)?")
_INNER: Final = re.compile(
    r"(?:#![^\[\n][^\n]*\n)?(?:\s|//(?!/)[^\n]*|/\*(?!\*)(?:[^*]|\*(?!/))*\*/|#!\[[^\]]*\])*"
)
_PACKAGE: Final = re.compile(r"^package [A-Za-z_]\w*[ \t;]*", re.MULTILINE)


def with_recorder(text: str, records: str, language: Language, *, name: str) -> str:
    """Return the file with its recorder, which is called `name`."""
    text = text.replace(HOLE, name)
    code = (resources("swe_rollout.grading.languages") / language.recorder).read_text()
    match language.recorder:
        case "recorder.js":
            return _javascript(text, code, records, name)
        case "recorder.go":
            return _go(text, _filled(code, records, name), name)
        case "recorder.rs":
            return _rust(text, _filled(code, records, name))
        case _:
            return f"{text}\n{_filled(code, records, name)}"


def _filled(code: str, records: str, name: str) -> str:
    return code.replace("@HOLE@", name).replace("@RECORDS@", json.dumps(records))


def _javascript(text: str, code: str, records: str, name: str) -> str:
    """Put it behind the directives; as a text that is evaluated, it has no types to check."""
    start = _HASHBANG.match(text)
    at = start.end() if start else 0
    behind = _DIRECTIVES.match(text, at)
    at = behind.end() if behind else at
    fs = 'typeof require === "function" ? require("fs") : process.getBuiltinModule("fs")'
    made = f'new Function("fs", "path", {json.dumps(code)})({fs}, {json.dumps(records)})'
    return f"{text[:at]}const {name} = {made}; {text[at:]}"


def _go(text: str, code: str, name: str) -> str:
    """Put imports behind the package's name, and the recorder at the end."""
    package = _PACKAGE.search(text)
    if package is None:
        return text
    imports = "".join(f'; import {name}{each} "{each}"' for each in ("fmt", "os", "reflect"))
    head = text[: package.end()].rstrip(" \t;")
    used = [each for each in ("assert", "require") if re.search(rf'/{each}"', text)]
    kept = "".join(f"var _ = {each}.Equal\n" for each in used)
    return f"{head}{imports}{text[package.end() :]}\n{code}{kept}"


def _rust(text: str, code: str) -> str:
    """Put it behind the attributes of the whole file, on one line, before anything uses it."""
    inner = _INNER.match(text)
    at = inner.end() if inner else 0
    return f"{text[:at]}{' '.join(code.split(chr(10)))} {text[at:]}"
