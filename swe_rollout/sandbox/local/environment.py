"""A Python environment of this machine: its folders, and the test programs it has.

The interpreter itself is asked: it knows about links, version managers and base installations.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from swe_rollout.errors import PrerequisiteError

_ANSWER_S: Final = 60.0
_PROGRAMS: Final = ("pytest", "tox", "tox_current_env", "nose", "pip")
_ASK: Final = """\
import importlib.util, json, os, sys, urllib.parse
first = os.path.dirname(os.path.abspath(sys.executable))
def sources():
    for folder in sys.path:
        if os.path.basename(folder) not in ("site-packages", "dist-packages"):
            continue
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".dist-info"):
                path = os.path.join(path, "direct_url.json")
            elif not name.endswith((".pth", ".egg-link")):
                continue
            try:
                text = open(path, errors="replace").read(1 << 16)
            except OSError:
                continue
            if path.endswith(".json"):
                url = json.loads(text)
                if url.get("dir_info", {}).get("editable"):
                    yield urllib.parse.unquote(urllib.parse.urlsplit(url["url"]).path)
            else:
                for line in text.splitlines():
                    if os.path.isabs(line.strip()):
                        yield line.strip()
def has(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
print(json.dumps({
    "executable": os.path.abspath(sys.executable),
    "prefix": os.path.abspath(sys.prefix),
    "base": os.path.abspath(getattr(sys, "base_prefix", sys.prefix)),
    "version": list(sys.version_info[:2]),
    "path": [os.path.abspath(each) for each in sys.path if each and os.path.isabs(each)],
    "sources": sorted(set(sources())),
    "modules": [name for name in sys.argv[1:] if has(name)],
    "programs": [name for name in sys.argv[1:] if os.path.exists(os.path.join(first, name))],
}))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python environment: a virtual one, or an installation."""

    executable: Path
    prefix: Path
    """The environment's folder. Links are not resolved, because scripts in it name this path."""
    base: Path
    """The folder of its base installation; equal to `prefix` if it is one itself."""
    version: tuple[int, int]
    path: tuple[Path, ...]
    """The folders that are searched for modules."""
    sources: tuple[Path, ...]
    """Folders outside the environment that it imports from: those of editable installs."""
    modules: frozenset[str]
    """The known test programs that can be imported as modules."""
    programs: frozenset[str]
    """The known test programs that lie beside the interpreter."""

    @property
    def is_virtual(self) -> bool:
        """Whether the environment has a base installation."""
        return self.prefix != self.base


def read_environment(python: Path) -> Environment:
    """Read the environment of an interpreter, or of the folder of a virtual environment.

    Raises PrerequisiteError when the interpreter does not run.
    """
    given = python / "bin" / "python" if python.is_dir() else python
    command = [str(given.absolute()), "-c", _ASK, *_PROGRAMS]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_ANSWER_S,
            check=True,
            cwd="/",
            stdin=subprocess.DEVNULL,
        )
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=Environment, dec_hook=_path)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, IndexError) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else b""
        raise PrerequisiteError(
            f"{given} is no Python that runs",
            why=(said or b"").decode("utf-8", "replace").strip()[-300:] or str(error),
            fix="name the interpreter of the task's environment, such as VENV/bin/python; "
            "`python3 -m venv VENV` makes one",
        ) from error


def _path(kind: type, value: object) -> Path:
    if kind is not Path or not isinstance(value, str):
        raise NotImplementedError
    return Path(value)
