"""The forms of an attack, and the attacks of `attacks.yaml`, which explains their fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec


class Kind(StrEnum):
    """The goal of an attack."""

    PEEK = "peek"
    """The fix of the attacker's task."""
    SECRETS = "secrets"
    """Secrets of the machine or its user."""
    ESCAPE = "escape"
    """More rights than a command has."""
    FORGERY = "forgery"
    """An undeserved result, patch or verdict."""
    DENIAL = "denial"
    """Memory, disk, processes, or the time of the controller and of other sandboxes."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack by a script."""

    name: str
    kind: Kind
    script: str
    """The script for a sandbox's shell."""
    wants: str
    """The sign of a successful attack."""
    held: str
    """A regular expression that matches the output of a failed attack."""
    seconds: float = 20.0
    """The command's deadline."""

    def problem(self, output: str) -> str:
        """Return what the attack achieved, or that it was not tried; empty if everything held."""
        if breaches := re.findall(r"^BREACH.*$", output, re.MULTILINE):
            return "; ".join(breaches)[:500]
        if re.search(self.held, output, re.MULTILINE) is None:
            return f"not tried: {output[-300:]!r}"
        return ""


@dataclass(frozen=True, slots=True)
class DiffAttack:
    """Files an agent leaves behind; their diff must be quick and contain only the real edit."""

    name: str
    script: str
    """The script to run in the repository after an honest edit, which adds `honest.txt`."""
    usable: bool = True
    """Whether a patch is expected, instead of a reason why there is none."""


@dataclass(frozen=True, slots=True)
class PatchAttack:
    """Code that runs when the grading tests import the broken package.

    It tries to make the grader believe that the tests pass, from outside the test process. What the
    test process itself prints, or leaves out, is beyond any grader that reads a log:
    docs/reference/threats.md.
    """

    name: str
    code: str
    """Python code; `LOG` is a log in which every expected test passes."""

    def module(self, log: str) -> str:
        """Return a module that runs the attack once, in the first process that imports it."""
        head = f"import os, time\nLOG = {log.encode()!r}\n{_INCLUDE['patch']}"
        body = "".join(f"    {line}\n" for line in (head + self.code).splitlines())
        return (
            "def _attack():\n" + body + "\n"
            "import os as _os\n"
            "if 'SWE_ATTACKED' not in _os.environ:\n"
            "    _os.environ['SWE_ATTACKED'] = '1'\n"
            "    try:\n        _attack()\n    except Exception:\n        pass\n"
        )


@dataclass(frozen=True, slots=True)
class GatewayAttack:
    """What the harness of a session does to the gateway and to the sessions beside it."""

    name: str
    wants: str
    code: str
    """Python, behind `gateway_harness.py`."""
    tells: bool = True
    """Whether its end is heard of: not if it ends its own door."""


class _Catalog(msgspec.Struct, frozen=True):
    """The contents of attacks.yaml."""

    local: tuple[Attack, ...]
    supervisor: tuple[Attack, ...]
    diff: tuple[DiffAttack, ...]
    patch: tuple[PatchAttack, ...]
    gateway: tuple[GatewayAttack, ...]
    include: dict[str, str]


def _included(attack: Attack) -> Attack:
    script = re.sub(r"^# include (\w+)\n", _part, attack.script, flags=re.MULTILINE)
    return replace(attack, script=script)


def _part(found: re.Match[str]) -> str:
    return _INCLUDE[found[1]]


_READ: Final = msgspec.yaml.decode(
    Path(__file__).with_name("attacks.yaml").read_bytes(), type=_Catalog
)
_INCLUDE: Final = _READ.include
LOCAL_ATTACKS: Final = tuple(map(_included, _READ.local))
SUPERVISOR_ATTACKS: Final = tuple(map(_included, _READ.supervisor))
DIFF_ATTACKS: Final = _READ.diff
PATCH_ATTACKS: Final = _READ.patch
GATEWAY_ATTACKS: Final = _READ.gateway
