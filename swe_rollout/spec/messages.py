"""Word pydantic's findings so that they say how to fix the field."""

from __future__ import annotations

import difflib
import re
import textwrap

from pydantic_core import ErrorDetails

from swe_rollout.spec.fields import all_fields, fields_in, fields_named, plain
from swe_rollout.spec.pod_template import template_fields

_SHOWN_CHARS = 60
_LARGEST_SHOWN = 10**9
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SAID = {
    **dict.fromkeys(("yes", "on", "y"), "true"),
    **dict.fromkeys(("no", "off", "n"), "false"),
}
_EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "finite_number": "a finite number",
    "string": "text",
    "bool": "true or false",
    "tuple": "a list",
    "dict": "a mapping",
    "model": "a mapping of fields",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def message_for(details: ErrorDetails) -> str:
    """Describe a finding in one line; empty if other findings explain it."""
    path = tuple(str(part) for part in details["loc"] if not isinstance(part, int))
    found = details["input"]
    match details["type"]:
        case "extra_forbidden":
            text = _unknown_field(path)
        case "missing":
            text = _missing_field(path)
        case "literal_error":
            text = _not_one_of(path, found)
        case "value_error":
            text = _value_error(str(details["ctx"]["error"]), found, path)
        case "not_plain":
            text = details["ctx"]["problem"]
        case "reward_options":
            text = details["msg"]
        case "too_short" if len(found) >= details["ctx"]["min_length"]:
            text = ""  # its items have their own problems
        case kind:
            hint = _fields_meant(path, found) if kind.startswith("model_") else ""
            hint = hint or _hint(kind, found)
            text = f"{_wanted(details, path)}, found {_shown(found)}{hint}"
    return text


def _hint(kind: str, found: object) -> str:
    """Suggest how to write what was meant; empty if there is no suggestion."""
    better = ""
    match kind, found:
        case "int_type" | "float_type" | "finite_number", str():
            better = _number_meant(found)
        case "int_type", float() if abs(found) < _LARGEST_SHOWN:
            better = f"write {round(found)}"
        case "string_type", bool() | int() | float():
            better = f'put it in quotes: "{_shown(found)}"'
        case "tuple_type" | "list_type", str() if re.fullmatch(r"[\w.*/-]+", found):
            better = f"write [{found}]"
        case "tuple_type" | "list_type", dict():
            better = "begin it with `- `"
        case "bool_type", str() if found.lower() in _SAID:
            better = f"write {_SAID[found.lower()]}"
        case "model_type" | "dict_type" | "model_attributes_type", list() if len(found) == 1:
            better = "one is meant, so remove the `- ` in front of it"
        case _:
            pass
    return f"; {better}" if better else ""


def _fields_meant(path: tuple[str, ...], found: object) -> str:
    """Suggest the fields that the value may have been meant for."""
    names = {field.name for field in fields_in(path)}
    match found:
        case str() if re.fullmatch(r"[\w.:-]+", found):
            name = next((each for each in ("use", "name", "uri") if each in names), "")
            return f"; write {{{name}: {found}}}" if name else ""
        case bool() if "enabled" in names:
            return f"; write {{enabled: {_shown(found)}}}"
        case _:
            return ""


def _number_meant(text: str) -> str:
    if re.fullmatch(r"-?\d+(\.\d+)?", text.strip()):
        return "write it without quotes"
    if re.fullmatch(r"\d{1,3}([_,]\d{3})+", text):
        return f"write {re.sub('[_,]', '', text)}"
    if share := re.fullmatch(r"(\d{1,3})%", text):
        return f"write {int(share[1]) / 100:g}"
    if thousands := re.fullmatch(r"(\d{1,6})[kK]", text):
        return f"write all digits, such as {int(thousands[1]) * 1024}"
    if time := re.fullmatch(r"(\d{1,6}) ?(s|m|min|h|d)", text):
        return f"write seconds: {int(time[1]) * _SECONDS[time[2][0]]}"
    return ""


def _wanted(details: ErrorDetails, path: tuple[str, ...]) -> str:
    kind, context = details["type"], details.get("ctx", {})
    match kind:
        case "string_pattern_mismatch":
            return f"expected {_pattern_words(path, details['input'])}"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters"
        case "too_short":
            return f"must have at least {context['min_length']} item"
        case "too_long":
            return f"must have at most {context['max_length']} items"
        case _ if kind in _BOUNDS:
            key, words = _BOUNDS[kind]
            return f"must be {words} {_plain_number(context[key])}"
        case _:
            return f"expected {_EXPECTED.get(kind.removesuffix('_type'), kind)}"


def _plain_number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.15g}"


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list() | tuple():
            return f"a list of {len(value)}" if value else "an empty list"
        case str() if "@" in value or "://" in value:
            # The part before the @ may be a password, the part after the ? a key.
            public = value.rpartition("@")[2].partition("?")[0]
            return textwrap.shorten(repr(f"…{public}"), _SHOWN_CHARS, placeholder="…")
        case _:
            return textwrap.shorten(repr(value), _SHOWN_CHARS, placeholder="…")


def _unknown_field(path: tuple[str, ...]) -> str:
    *parent, name = path
    if fixed := template_fields(tuple(parent)):
        return f"not for a job to set, only {', '.join(fixed)}"
    siblings = [field.name for field in fields_in(tuple(parent))]
    close = _close(name, siblings)
    if close:
        return f"no such field; did you mean `{close}`?"
    elsewhere = fields_named(name)
    if elsewhere:
        homes = " or ".join(f"`{'.'.join(field.path[:-1]) or 'the top'}`" for field in elsewhere)
        return f"no such field here; `{elsewhere[0].name}` belongs under {homes}"
    close = _close(name, [field.name for field in all_fields()])
    if close:
        home = next(field for field in all_fields() if field.name == close)
        return f"no such field; did you mean `{home.dotted}`?"
    return f"no such field; expected {', '.join(siblings)}" if siblings else "no such field"


def _missing_field(path: tuple[str, ...]) -> str:
    known = next((field for field in all_fields() if field.path == path), None)
    if known is None:
        return "missing"
    inside = ", ".join(field.name for field in fields_in(path))
    return f"missing: {known.doc.rstrip('.')}" + (f" (fields: {inside})" if inside else "")


def _not_one_of(path: tuple[str, ...], found: object) -> str:
    known = next((field for field in all_fields() if field.path == path), None)
    words = known.type.partition("one of ")[2] or known.type if known else ""
    choices = words.split(", ")
    if len(choices) == 1:
        return f"write `{choices[0]}`; found {_shown(found)}"
    close = _close(str(found), choices)
    hint = f"; did you mean `{close}`?" if close else ""
    return f"expected one of {', '.join(choices)}; found {_shown(found)}{hint}"


def _pattern_words(path: tuple[str, ...], found: object) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", str(found).lower()).strip("-")[:63].strip("-")
    hint = f", such as `{slug}`" if slug and path == ("metadata", "name") else ""
    return f"lower-case letters, digits and `-`{hint}"


def _value_error(message: str, found: object, path: tuple[str, ...]) -> str:
    if not isinstance(found, dict):
        return f"expected {message}, found {_shown(found)}{_meant(path, found, message)}"
    named = [name for name, value in found.items() if value is None]
    if named:
        return f"{message}; nothing is set under `{named[0]}`, write `{named[0]}: {{}}`"
    if "found none" in message or not path:
        return message
    return f"{message}; remove one"


def _meant(path: tuple[str, ...], found: object, message: str) -> str:
    """Suggest a correction for an amount or address in nearly the right form."""
    if not isinstance(found, str) or "placeholder" in message:
        return ""
    if amount := re.fullmatch(r"([\d.]+) ?([KMGT])i?[Bb]", found):
        return f"; write {amount[1]}{amount[2]}i"
    if path[-2:] == ("store", "uri") and re.search("://|blanks", message):
        return _store_meant(found)
    if path[-1] == "url" and re.fullmatch(r"[\w.-]+(:\d+)?(/.*)?", found):
        return f"; write http://{found}"
    return ""


def _store_meant(found: str) -> str:
    text = " ".join(found.split())
    if not text:
        return "; leave it out for the folder runs"
    if "@" in text or "?" in text:  # it may hold a password
        return ""
    parts = re.match(r"(?i)(?:(s3|gs|az|file):(/*))?(.*)", text)
    if parts is None or re.match(r"\w+:", parts[3]):
        return ""
    scheme, slashes, name = (parts[1] or "file").lower(), parts[2] or "", parts[3].rstrip("/")
    is_root = scheme == "file" and slashes in ("/", "///")
    what = "folder" if scheme == "file" else "bucket"
    better = f"{scheme}://{'/' * is_root}{name}"
    return (f"; write {better}" if better != found else "") if name else f"; the {what} is missing"


def _close(name: str, choices: list[str]) -> str | None:
    by_plain = {plain(choice): choice for choice in choices}
    matches = difflib.get_close_matches(plain(name), list(by_plain), n=1, cutoff=0.65)
    return by_plain[matches[0]] if matches else None
