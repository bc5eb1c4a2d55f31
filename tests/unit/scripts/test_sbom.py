"""The SBOM: valid by the standard's own schema, complete by the lock, the same each time.

Aspects: schema; every package of the image with its hashes; licences in every form in which
metadata states them, and one that nobody accepted; dependencies and extras; Debian's packages.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from checkout import ROOT
from rollout_dev import sbom
from rollout_dev.dev_cluster.errors import ScriptError

SCHEMAS = ROOT / "tests" / "golden" / "cyclonedx"
Json = dict[str, Any]
STATUS = """\
Package: git
Status: install ok installed
Architecture: amd64
Version: 1:2.39.5-0+deb12u2
Description: fast
 Version: 9 is no field of this package

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: adduser
Status: install ok installed
Architecture: all
Version: 3.134
"""
DEBIAN = sbom.debian_components(STATUS)


@pytest.fixture(scope="module")
def found() -> list[sbom.Package]:
    if sys.version_info[:2] != (3, 11):
        pytest.skip("needs Python 3.11, the image's: the lock has other packages for others")
    return sbom.packages(ROOT)


@pytest.fixture(scope="module")
def document(found: list[sbom.Package]) -> Json:
    made: Json = json.loads(sbom.sbom(ROOT, found, DEBIAN))
    return made


def errors(document: Json) -> list[str]:
    """Return what CycloneDX's schema finds wrong."""
    schemas = {path.name: json.loads(path.read_text()) for path in SCHEMAS.glob("*.json")}
    registry = Registry().with_resources(
        (schema["$id"].rpartition("/")[0] + f"/{name}", Resource.from_contents(schema))
        for name, schema in schemas.items()
    )
    validator = jsonschema.Draft7Validator(
        schemas["bom-1.6.SNAPSHOT.schema.json"],
        registry=registry,
        format_checker=jsonschema.FormatChecker(),
    )
    return [f"{list(each.path)}: {each.message[:200]}" for each in validator.iter_errors(document)]


def test_the_standards_schema_finds_nothing_wrong(document: Json) -> None:
    assert errors(document) == []
    assert errors({**document, "serialNumber": "urn:uuid:1"})
    assert [each["purl"] for each in DEBIAN] == [
        "pkg:deb/debian/adduser@3.134?arch=all",
        "pkg:deb/debian/git@1%3A2.39.5-0%2Bdeb12u2?arch=amd64",
    ]


def test_every_package_of_the_image_is_there_with_all_its_hashes(document: Json) -> None:
    text = (ROOT / "requirements" / "worker.txt").read_text()
    components = {each["name"]: each for each in document["components"]}
    # A name may be locked twice, for other Pythons and platforms: then one of them is in the image.
    for_others = {"colorama", "httpx2-jsfetch", "pywin32"}

    assert components.keys() - {"git", "adduser"} == (
        set(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE)) - for_others
    )
    assert all(each["licenses"] for each in components.values() if "pypi" in each["purl"])
    for name in ("aiohttp", "numpy", "zstandard"):
        each = components[name]
        [block] = re.findall(
            rf"^{name}=={re.escape(each['version'])}[ ;].*?(?=^\S|\Z)",
            text,
            re.MULTILINE | re.DOTALL,
        )
        [reference] = each["externalReferences"]
        hashes = {one["content"] for one in reference["hashes"]}
        assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", block))


def test_the_same_content_is_the_same_bytes(found: list[sbom.Package]) -> None:
    first, again = sbom.sbom(ROOT, found), sbom.sbom(ROOT, sbom.packages(ROOT))

    assert first == again
    assert "timestamp" not in first
    assert (
        json.loads(first)["serialNumber"] != json.loads(sbom.sbom(ROOT, found[:-1]))["serialNumber"]
    )


def test_dependencies_name_components_and_reach_all_of_them(document: Json) -> None:
    graph = {each["ref"]: each["dependsOn"] for each in document["dependencies"]}
    reached, waiting = set(), [document["metadata"]["component"]["bom-ref"]]
    while waiting:
        reference = waiting.pop()
        if reference not in reached:
            reached.add(reference)
            waiting += graph[reference]

    names = {each["bom-ref"] for each in document["components"]}
    pypi = {name for name in names if name.startswith("pkg:pypi/")}
    assert reached - {document["metadata"]["component"]["bom-ref"]} == pypi


@pytest.mark.parametrize(
    ("metadata", "classifiers", "expected"),
    [
        ({"License-Expression": "Apache-2.0 and MIT"}, (), "Apache-2.0 AND MIT"),
        ({"License": "MIT"}, (), "MIT"),
        ({"License": "Apache 2.0"}, (), "Apache-2.0"),
        ({"License": "UNKNOWN"}, ("License :: OSI Approved :: MIT License",), "MIT"),
        ({}, ("License :: OSI Approved :: BSD License",), "BSD License"),
        (
            {"License": "Copyright (c) Somebody\nPermission is hereby granted"},
            ("License :: OSI Approved :: MIT License", "Programming Language :: Python"),
            "MIT",
        ),
        ({}, ("License :: OSI Approved",), ""),
        ({}, (), ""),
    ],
)
def test_licences_are_read_in_every_form(
    metadata: dict[str, str], classifiers: tuple[str, ...], expected: str
) -> None:
    assert sbom.license_of(metadata, classifiers) == expected


@pytest.mark.parametrize("stated", ["GPL-3.0-only", "MIT AND AGPL-3.0-only", ""])
def test_a_licence_that_nobody_accepted_stops_the_command(
    stated: str, found: list[sbom.Package], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sbom, "license_of", lambda *_: stated)

    with pytest.raises(ScriptError, match="nobody has accepted"):
        sbom._package(found[0].pin)


def test_the_command_writes_one_file_and_says_where(
    found: list[sbom.Package], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "folder" / "x.cdx.json"

    assert sbom.main(["--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text(encoding="utf-8") == sbom.sbom(ROOT, found)
    assert sbom.main(["--licenses"]) == 0
    assert "aiohttp 3." in capsys.readouterr().out
