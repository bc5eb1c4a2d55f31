"""Redaction: keep secrets out of errors, logs and records, whoever echoed them to us.

A server can echo the key it was called with. `redact` replaces every known secret in a text with
`[redacted]`: values of environment variables named like secrets, and values passed to `register`.
It finds plain, base64, percent-encoded, hexadecimal and escaped forms, and pieces of them, because
outside texts may be cut anywhere; secrets in any other encoding are not found. Used where errors
are made, logs are written, engines' texts are read and records are encoded.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import string
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

MARK: Final = "[redacted]"
SHORTEST: Final = 4
"""Shorter values are not treated as secrets: they would hide parts of ordinary words."""
_WORD: Final = 8
"""Shorter secrets are replaced as whole words only."""
_PIECE: Final = 12
"""Length of pieces that are found on their own; records are searched for secrets this long."""
_SECRET_NAME: Final = re.compile(
    r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|PWD|CREDENTIALS?|SAS)(_\d+)?$",
    re.IGNORECASE,
)
_FOREIGN: Final = (0, 2, 3)
"""How many base64 characters of a secret depend on the 0, 1 or 2 bytes before it."""
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_USER_INFO: Final = re.compile(r"://[^/\s@]*@")


class Redactor:
    """Replaces the secrets it knows."""

    def __init__(self) -> None:
        self._forms: dict[str, tuple[str, ...]] = {}
        """The forms of each secret in lower case."""
        self._pieces: dict[int, frozenset[str]] = {}
        """All pieces of all forms, by length."""
        self._words: re.Pattern[str] | None = None
        self._is_escaped = False

    @property
    def is_empty(self) -> bool:
        """Whether no secret is known."""
        return not self._forms

    @property
    def is_escaped(self) -> bool:
        """Whether any secret changes when JSON escapes it.

        JSON within a text is then escaped again in a record, where a search of the bytes can't find
        the secret.
        """
        return self._is_escaped

    def register(self, secret: str) -> None:
        """Redact this value from now on; texts shorter than `SHORTEST` characters are ignored."""
        secret = secret.strip()
        if len(secret) < SHORTEST or secret in self._forms:
            return
        self._is_escaped = self._is_escaped or json.dumps(secret)[1:-1] != secret
        self._forms[secret] = tuple(dict.fromkeys(map(_lower, _forms(secret))))
        pieces: dict[int, set[str]] = {}
        for form in (form for forms in self._forms.values() for form in forms):
            size = min(len(form), _PIECE)
            if size >= _WORD:
                pieces.setdefault(size, set()).update(_cut(form, size))
        self._pieces = {size: frozenset(found) for size, found in pieces.items()}
        if words := [re.escape(each) for each in self._forms if len(each) < _WORD]:
            self._words = re.compile(rf"(?<![\w-])(?:{'|'.join(words)})(?![\w-])", re.IGNORECASE)

    def redact(self, text: str) -> str:
        """Return the text with `MARK` in place of secrets, and without user names in addresses."""
        if "@" in text:
            text = _USER_INFO.sub(f"://{MARK}@", text)
        if self._words is not None:
            text = self._words.sub(MARK, text)
        return self._without_pieces(text) if self._pieces else text

    def is_in(self, data: bytes) -> bool:
        """Return whether a whole secret is in the data, in any form; fast on large data."""
        if not self._forms:
            return False
        lowered = data.lower()
        return any(
            form.encode() in lowered
            for forms in self._forms.values()
            for form in forms
            if len(form) >= _PIECE
        )

    def redact_values(self, value: object) -> object:
        """Return JSON's plain values with every string redacted, including field names.

        Numbers stay as they are.
        """
        match value:
            case str():
                return self.redact(value)
            case dict():
                return self._redacted_object(value)
            case list() | tuple():
                return [self.redact_values(inner) for inner in value]
            case _:
                return value

    def _redacted_object(self, value: dict[object, object]) -> dict[object, object]:
        redacted: dict[object, object] = {}
        for key, inner in value.items():
            name = self.redact(key) if isinstance(key, str) else key
            while name in redacted:  # two names were secrets
                name = f"{name}+"
            redacted[name] = self.redact_values(inner)
        return redacted

    def _without_pieces(self, text: str) -> str:
        lowered = _lower(text)
        kept: list[str] = []
        position = end = 0
        for start, stop in self._found(lowered):
            if start > end:
                kept += (text[position:start], MARK)
            elif not kept:
                kept.append(MARK)
            position = end = max(end, stop)
        return "".join((*kept, text[position:])) if kept else text

    def _found(self, lowered: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each piece, sorted by start."""
        sizes = self._pieces.items()
        for start in range(len(lowered)):
            for size, pieces in sizes:
                if lowered[start : start + size] in pieces:
                    yield start, start + size


def _forms(secret: str) -> Iterator[str]:
    """Yield the forms in which servers and libraries write the secret."""
    data = secret.encode(errors="surrogateescape")
    yield secret
    yield quote(secret, safe="", errors="replace")
    yield quote_plus(secret, errors="replace")
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
    yield html.escape(secret)
    yield data.hex()
    for before in range(3):
        # Inside a longer text, all but the characters at the ends depend only on the secret.
        encoded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        end = len(encoded) - ((before + len(data)) % 3 > 0)
        yield (inner := encoded[_FOREIGN[before] : end])
        yield inner.replace("+", "-").replace("/", "_")


def _cut(form: str, size: int) -> Iterator[str]:
    return (form[start : start + size] for start in range(len(form) - size + 1))


def _lower(text: str) -> str:
    """Return the text with ASCII letters in lower case; every character keeps its offset."""
    return text.translate(_LOWER)


def secrets_in(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables named like secrets, and the passwords in addresses."""
    for name, value in environment.items():
        if "://" in value:
            yield from _passwords(value)
        elif _SECRET_NAME.search(name) and len(value) >= _WORD and not value.startswith("/"):
            yield value


def _passwords(address: str) -> Iterator[str]:
    try:
        password = urlsplit(address).password
    except ValueError:
        return
    if password and len(password) >= SHORTEST:
        yield from {password, unquote(password)}


_ALL: Final = Redactor()
_IN_USE: Final = Redactor()
"""The values passed to `register`, the only ones that records are searched for."""


def register(secret: str) -> None:
    """Keep a credential in use out of all errors, logs and records of this process."""
    _ALL.register(secret)
    _IN_USE.register(secret)


def register_environment() -> None:
    """Keep the secrets in environment variables out of all errors and logs."""
    for secret in secrets_in(os.environ):
        _ALL.register(secret)


def redact(text: str) -> str:
    """Return the text without the secrets of this process."""
    return _ALL.redact(text)


def holds_secret(data: bytes) -> bool:
    """Return whether a credential in use is in the data, in any known form."""
    return _IN_USE.is_in(data)


def has_secrets() -> bool:
    """Return whether any credential is in use."""
    return not _IN_USE.is_empty


def redact_record(data: bytes) -> bytes:
    """Return JSON without the credentials in use; the same bytes if it has none."""
    if not _IN_USE.is_escaped and not _IN_USE.is_in(data):
        return data
    import msgspec  # noqa: PLC0415 - records need it, errors of the command line do not

    return msgspec.json.encode(_IN_USE.redact_values(msgspec.json.decode(data)))


def redact_log(data: bytes) -> bytes:
    """Return a log without the credentials in use; the same bytes if it has none."""
    if not _IN_USE.is_in(data):
        return data
    return _IN_USE.redact(data.decode(errors="replace")).encode()


register_environment()
