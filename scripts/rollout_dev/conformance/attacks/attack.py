"""What an attack is, and the attacks of `attacks.yaml`, which says what their fields mean."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec


class Kind(StrEnum):
    """What an attack is after."""

    PEEK = "peek"
    """The fix of its task."""
    SECRETS = "secrets"
    """What belongs to the machine or its user."""
    ESCAPE = "escape"
    """More rights than a command has."""
    FORGERY = "forgery"
    """A result, a patch or a verdict that nothing has earned."""
    DENIAL = "denial"
    """Memory, disk, processes, or the time of the controller and of other sandboxes."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attempt."""

    name: str
    kind: Kind
    script: str
    """For the shell of a sandbox."""
    wants: str
    """What a success looks like."""
    held: str
    """A regular expression over the output of an attempt that failed."""
    seconds: float = 20.0
    """The command's deadline."""


@dataclass(frozen=True, slots=True)
class DiffAttack:
    """What an agent leaves behind; the diff of it has to come soon, and hold just the real edit."""

    name: str
    script: str
    """Script that runs in the repository, after an honest edit that adds the file `honest.txt`."""
    usable: bool = True
    """Whether a patch is expected; otherwise a reason why there is none."""


@dataclass(frozen=True, slots=True)
class PatchAttack:
    """Code that runs when the broken package is imported by the tests that grade it.

    It tries to make the grader believe that they pass, from outside of the test's own process. What
    the test process itself prints, or leaves out, is beyond any grader that reads a log:
    docs/reference/threats.md.
    """

    name: str
    code: str
    """Python; `LOG` is a log in which every expected test passes."""

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


class _Catalog(msgspec.Struct, frozen=True):
    """The contents of attacks.yaml."""

    local: tuple[Attack, ...]
    supervisor: tuple[Attack, ...]
    diff: tuple[DiffAttack, ...]
    patch: tuple[PatchAttack, ...]
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
