"""What becomes of each field of a request: `fields.yaml` says so, and no other is lost silently."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import msgspec
import yaml

from swe_rollout.gateway.values import BadRequestError

_MOST_NOTED: Final = 16
"""Names of unknown fields of one request; they may be the policy's."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of some fields; one of the first three says so."""

    fields: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    refused: str = ""
    left_out: str = ""
    unless: tuple[Any, ...] = (False,)
    when: tuple[Any, ...] = ()

    def allows(self, value: object) -> bool:
        """Return whether a field may have this value."""
        each = value if isinstance(value, list) else [value]
        if not self.refused:
            return True
        if self.when:
            return not any(_is(one, bad) for one in each for bad in self.when)
        return all(any(_is(one, good) for good in self.unless) for one in each)


@cache
def rules() -> Mapping[str, tuple[Rule, ...]]:
    """Return the rules of each API."""
    text = (files(__package__) / "fields.yaml").read_text("utf-8")
    return msgspec.convert(yaml.safe_load(text), dict[str, tuple[Rule, ...]])


class Fields:
    """The fields of one API."""

    def __init__(self, api: str) -> None:
        self._rules = {name: rule for rule in rules()[api] for name in (*rule.fields, *rule.read)}
        self._parents = {name.rpartition(".")[0] for name in self._rules} - {""}

    def unknown(self, body: bytes) -> tuple[str, ...]:
        """Return the fields of a body that no rule is for.

        Raises BadRequestError for one that is refused. What is read is not decoded here.
        """
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        found = [name for key, raw in given.items() for name in self._judged(key, raw)]
        return tuple(f"the field {name}" for name in found[:_MOST_NOTED])

    def _judged(self, name: str, value: object) -> Iterator[str]:
        rule = self._rules.get(name)
        if rule is not None and rule.read:
            return
        if isinstance(value, msgspec.Raw):
            value = msgspec.json.decode(value)
        if value is None or value in ("", [], {}):
            return
        if rule is not None:
            if not rule.allows(value):
                raise BadRequestError(f"`{name}` is refused: {rule.refused}", code=_CODE)
        elif name in self._parents and isinstance(value, dict):
            for key, each in value.items():
                yield from self._judged(f"{name}.{key}", each)
        else:
            yield name[:_SHOWN]


_CODE: Final = "unsupported_value"
_SHOWN: Final = 60


def _is(value: object, known: object) -> bool:
    """Return whether a value is the known one; of an object, whether it has what is known of it."""
    if isinstance(value, dict) and isinstance(known, dict):
        return all(value.get(key) == each for key, each in known.items())
    return value == known
