"""Decide whether a changed build file steers how tests run. Pure; both texts are untrusted.

Such a file says many things. Where nothing changes but what it says about its package, as its
dependencies or its version, the change stays; any other change is undone as a whole.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NoReturn
from xml.etree import ElementTree as ET

_JSON: Final = frozenset(
    """name version description keywords homepage bugs license author contributors maintainers
    funding files main module types typings exports imports browser bin man directories repository
    dependencies devDependencies peerDependencies peerDependenciesMeta optionalDependencies
    bundledDependencies overrides resolutions packageManager engines os cpu
    private publishConfig sideEffects type""".split()
)
_COMPOSER: Final = frozenset(
    """name version description type keywords homepage readme time license authors support funding
    require require-dev conflict replace provide suggest autoload bin abandoned archive
    minimum-stability prefer-stable""".split()
)
_CARGO: Final = frozenset({"dependencies", "dev-dependencies", "features", "badges", "lints"})
_CRATE: Final = frozenset(
    """version authors description documentation readme homepage repository license license-file
    keywords categories rust-version publish""".split()
)
_MAVEN: Final = frozenset(
    """dependencies version description name url developers contributors licenses scm organization
    issueManagement inceptionYear""".split()
)
_GO: Final = frozenset({"require", "go", "toolchain", "retract"})
_MOST_DOTS: Final = 100
"""The most dots of a line: reading a key costs the square of its parts."""


def steers(path: str, before: str | None, after: str | None) -> bool:
    """Return whether a change of this build file steers how tests run.

    An empty text stands for a file that does not exist, None for one that can't be read.
    """
    rest = _RESTS[path.rpartition("/")[2]]
    if before is None or after is None:
        return True
    try:
        return rest(before) != rest(after)
    except (ValueError, RecursionError, ET.ParseError):
        return True


def is_build_file(path: str) -> bool:
    """Return whether `steers` knows a file of this name."""
    return path.rpartition("/")[2] in _RESTS


def _of_json(text: str, names: frozenset[str]) -> object:
    found: object = json.loads(text or "{}")
    return _without(found, names) if isinstance(found, dict) else found


def _of_cargo(text: str) -> object:
    if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
        raise ValueError
    found = _without(tomllib.loads(text), _CARGO)
    workspace = _without(found.get("workspace"), _CARGO)
    return found | {
        "package": _without(found.get("package"), _CRATE),
        "workspace": workspace | {"package": _without(workspace.get("package"), _CRATE)},
        "is_workspace": "workspace" in found,
    }


def _without(table: object, names: frozenset[str]) -> dict[str, object]:
    pairs = table.items() if isinstance(table, dict) else ()
    return {key: value for key, value in pairs if key not in names}


class _NoEntities(ET.TreeBuilder):
    def doctype(self, *_: object) -> NoReturn:
        raise ValueError


def _of_pom(text: str) -> object:
    if not text:
        return ""
    root = ET.fromstring(text, ET.XMLParser(target=_NoEntities()))  # noqa: S314 (no entities)
    for child in list(root):
        if child.tag.rpartition("}")[2] in _MAVEN:
            root.remove(child)
    return ET.canonicalize(ET.tostring(root, "unicode"), strip_text=True)


def _of_go(text: str) -> object:
    if '"' in text or "`" in text:
        raise ValueError  # texts may hide what looks like a comment
    found, block = [], ""
    for line in text.split("\n"):
        words = line.partition("//")[0].replace("(", " ( ").replace(")", " ) ").split()
        if words[1:] == ["("]:
            block = words[0]
        elif words == [")"]:
            block = ""
        elif block and {"(", ")"} & set(words):
            raise ValueError
        elif words and (block or words[0]) not in _GO:
            found.append((block, *words))
    return found


_RESTS: Final[Mapping[str, Callable[[str], object]]] = {
    "package.json": partial(_of_json, names=_JSON),
    "composer.json": partial(_of_json, names=_COMPOSER),
    "Cargo.toml": _of_cargo,
    "pom.xml": _of_pom,
    "go.mod": _of_go,
}
"""What each file says that steers tests."""
