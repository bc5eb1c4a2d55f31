"""Write a release's contents, from its hashed lock, as an SBOM in CycloneDX 1.6 JSON.

Packages, versions and hashes are the lock's; licences and dependencies are read from the installed
packages of the same versions. Debian's packages are read from the base layer of the image. The same
content gives the same bytes: no time, no random serial number.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import sys
import tarfile
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import PREREQUISITE, Progress, ScriptError
from rollout_dev.images import recipe, rootfs
from rollout_dev.images.recipe import Application, Python

ACCEPTED: Final = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python"),
        *("ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Zlib", "BSD License"),
    }
)
"""The licences that a dependency may have. Any other needs a decision, and stops the command."""
_EXTRAS: Final = ("mcp", "metrics", "operator", "otel")
"""The extras in the worker's image: those of its lock, see scripts/lock, and their dependencies."""
_CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD License",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Licences by the last part of a classifier; `BSD License` does not say which one."""
_SPELT: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "ISC License": "ISC",
}
"""Licences by their packages' wording."""
_PIN: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\\n]+?))?"
    r"(?P<hashes>(?: \\\n +--hash=sha256:[0-9a-f]{64})+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Pin:
    """A package of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """The SHA-256 of each file of this version, in hexadecimal."""

    @property
    def purl(self) -> str:
        """The package URL, which is also its reference in the SBOM."""
        return f"pkg:pypi/{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Package:
    """A package of a lock, with its metadata."""

    pin: Pin
    license: str
    """An SPDX expression, or `BSD License`."""
    requires: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the SBOM of the worker's image and of the wheel with its extras; print its path."""
    parser = argparse.ArgumentParser(prog="scripts/sbom", description=__doc__)
    parser.add_argument(
        "-O",
        "--out",
        type=Path,
        help="the file to write; default: build/sbom/NAME-VERSION.cdx.json",
    )
    parser.add_argument(
        "--licenses", action="store_true", help="print the licences instead, and write nothing"
    )
    parser.add_argument(
        "--image",
        action="store_true",
        help="add Debian's packages of the image; builds its base unless the cache has it",
    )
    chosen = parser.parse_args(arguments)
    root = Checkout.here().root
    try:
        found = packages(root)
        debian = debian_components(_dpkg_status()) if chosen.image else []
    except ScriptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    if chosen.licenses:
        print("\n".join(f"{each.pin.name} {each.pin.version}  {each.license}" for each in found))
        return 0
    version = recipe.project().version
    name = "swe-rollout-worker" if chosen.image else "swe-rollout"
    out: Path = chosen.out or root / "build" / "sbom" / f"{name}-{version}.cdx.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(sbom(root, found, debian), encoding="utf-8")
    print(out)
    return 0


def packages(root: Path) -> list[Package]:
    """Return the packages of the worker's lock for Linux, by name. Raises ScriptError."""
    source = _source()
    environment = marker_environment(source.python)
    pins = locked(source.requirements.read_text(encoding="utf-8"), environment)
    if len(pins) < 2:  # noqa: PLR2004 - a lock that could not be read
        raise ScriptError(f"{source.requirements.relative_to(root)} has no packages.")
    return [_package(pin) for pin in pins]


def locked(text: str, environment: Mapping[str, str]) -> list[Pin]:
    """Return the packages of a lock for this environment, by name."""
    return sorted(
        (
            Pin(
                canonicalize_name(found["name"]),
                found["version"],
                tuple(sorted(re.findall(r"sha256:([0-9a-f]+)", found["hashes"]))),
            )
            for found in _PIN.finditer(text)
            if not found["marker"] or Marker(found["marker"]).evaluate(dict(environment))
        ),
        key=lambda pin: pin.name,
    )


def marker_environment(python: str) -> dict[str, str]:
    """Return the image's environment for markers, whatever this machine is."""
    return {
        "extra": "",
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def license_of(metadata: Mapping[str, str], classifiers: Iterable[str]) -> str:
    """Return an SPDX expression, or `BSD License`; empty if the metadata names no known one."""
    for stated in (metadata.get("License-Expression"), metadata.get("License")):
        spelt = (stated or "").strip()
        try:
            return canonicalize_license_expression(_SPELT.get(spelt, spelt))
        except InvalidLicenseExpression:
            continue  # Older packages have a text here.
    last = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]
    return " AND ".join(dict.fromkeys(_CLASSIFIERS[each] for each in last if each in _CLASSIFIERS))


def sbom(root: Path, found: Sequence[Package], others: Sequence[Mapping[str, object]] = ()) -> str:
    """Return the SBOM as JSON; `others` are components without known dependencies."""
    project = recipe.project()
    lock = _source().requirements
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    reference = f"pkg:pypi/swe-rollout@{project.version}"
    graph = _graph(root, found)
    document: dict[str, object] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "component": {
                "bom-ref": reference,
                "type": "application",
                "name": "swe-rollout",
                "version": project.version,
                "purl": reference,
                "licenses": _licenses(project.license),
            },
            "properties": [
                {
                    "name": "swe-rollout:lock",
                    "value": f"{lock.relative_to(root)} sha256:{digest}",
                }
            ],
        },
        "components": [*(_component(each) for each in found), *others],
        "dependencies": [
            {"ref": reference, "dependsOn": graph[""]},
            *({"ref": each.pin.purl, "dependsOn": graph[each.pin.name]} for each in found),
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document, sort_keys=True))
    return json.dumps({**document, "serialNumber": serial.urn}, indent=2, sort_keys=True) + "\n"


def debian_components(status: str) -> list[dict[str, object]]:
    """Return the components of a Debian `dpkg/status`, by name."""
    components: list[dict[str, object]] = []
    for text in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in text.splitlines() if re.match(r"[A-Za-z-]+: ", line)
        )
        if fields.get("Status") != "install ok installed":
            continue
        name, version = fields["Package"], fields["Version"]
        purl = f"pkg:deb/debian/{name}@{quote(version)}?arch={fields['Architecture']}"
        components.append(
            {
                "bom-ref": purl,
                "type": "library",
                "name": name,
                "version": version,
                "purl": purl,
            }
        )
    return sorted(components, key=lambda each: str(each["bom-ref"]))


def _dpkg_status() -> str:
    layer = rootfs.layer(recipe.base_recipe("base"), Progress())
    with tarfile.open(layer.path) as tar:
        name = next(each for each in tar.getnames() if each.endswith("var/lib/dpkg/status"))
        file = tar.extractfile(name)
        return file.read().decode() if file is not None else ""


def _source() -> Python:
    match recipe.read("worker"):
        case Application(source=Python() as source):
            return source
        case _:
            raise ScriptError("The worker's recipe is not one of Python packages.")


def _package(pin: Pin) -> Package:
    fix = "make setup (with Python 3.11, the image's), then run it again"
    try:
        installed = importlib.metadata.distribution(pin.name)
    except importlib.metadata.PackageNotFoundError:
        raise ScriptError(
            f"{pin.name} {pin.version} is not installed.",
            why="its licence is read from its metadata.",
            fix=fix,
            exit_code=PREREQUISITE,
        ) from None
    if installed.version != pin.version:
        raise ScriptError(
            f"{pin.name} {installed.version} is installed.",
            why=f"the lock has {pin.version}.",
            fix=fix,
            exit_code=PREREQUISITE,
        )
    metadata = installed.metadata
    stated = {key: metadata[key] for key in ("License-Expression", "License") if key in metadata}
    found = license_of(stated, metadata.get_all("Classifier") or ())
    unknown = {each for each in _names(found) if each not in ACCEPTED}
    if not found or unknown:
        raise ScriptError(
            f"{pin.name} {pin.version} has a licence that nobody has accepted.",
            why=", ".join(sorted(unknown)) or "its metadata names none that is known.",
            fix="read it, then add it to ACCEPTED in scripts/rollout_dev/sbom.py",
        )
    return Package(pin, found, tuple(installed.requires or ()))


def _names(expression: str) -> list[str]:
    return [each.strip("() ") for each in re.split(r" (?:AND|OR|WITH) ", expression) if each]


def _component(package: Package) -> dict[str, object]:
    pin = package.pin
    return {
        "bom-ref": pin.purl,
        "type": "library",
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        "licenses": _licenses(package.license),
        "externalReferences": [
            {
                "type": "distribution",
                "url": pin.purl,
                "comment": "one of these files, whichever fits the machine",
                "hashes": [{"alg": "SHA-256", "content": each} for each in pin.hashes],
            }
        ],
    }


def _licenses(expression: str) -> list[dict[str, object]]:
    if len(_names(expression)) > 1:
        return [{"expression": expression}]
    key = "name" if " " in expression else "id"
    return [{"license": {key: expression}}]


def _graph(root: Path, found: Sequence[Package]) -> dict[str, list[str]]:
    """Return the package URLs that each package needs, by its name; ours has none."""
    environment = marker_environment(_source().python)
    purls = {each.pin.name: each.pin.purl for each in found}
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    ours = [*project["dependencies"]]
    for extra in _EXTRAS:
        ours += project["optional-dependencies"][extra]
    requires = {
        name: [Requirement(line) for line in lines]
        for name, lines in [("", ours), *((each.pin.name, each.requires) for each in found)]
    }
    extras: dict[str, set[str]] = {name: {""} for name in requires}
    graph: dict[str, set[str]] = {name: set() for name in requires}
    before = -1
    # A requested extra may add more, so repeat until nothing changes.
    while before != (before := sum(map(len, (*extras.values(), *graph.values())))):
        for name, needs in requires.items():
            for each in needs:
                other = canonicalize_name(each.name)
                if other in purls and _applies(each.marker, extras[name], environment):
                    graph[name].add(purls[other])
                    extras[other] |= each.extras
    return {name: sorted(needs) for name, needs in graph.items()}


def _applies(marker: Marker | None, extras: Iterable[str], environment: Mapping[str, str]) -> bool:
    return marker is None or any(
        marker.evaluate({**environment, "extra": extra}) for extra in extras
    )


if __name__ == "__main__":
    sys.exit(main())
