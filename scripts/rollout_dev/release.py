"""Check whether this checkout can be released: `scripts/release-check`, docs/how-to/release.md.

Each check returns problems, and looks at everything even if another one failed. Nothing is changed,
and nothing is uploaded.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from packaging.version import InvalidVersion, Version

from rollout_dev import sbom
from rollout_dev.codegen.__main__ import generated
from rollout_dev.codegen.chart import FOLDER
from rollout_dev.dev_cluster.checkout import Checkout
from rollout_dev.dev_cluster.errors import ScriptError
from rollout_dev.images import recipe

KEYS: Final = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s*[A-Za-z0-9+/]{40}"
    rb"|\bAKIA(?!IOSFODNN7EXAMPLE)[0-9A-Z]{16}\b"
    rb"|\b(?:sk-(?:ant-|proj-)?|hf_|ghp_|github_pat_|glpat-|xox[bp]-)[A-Za-z0-9_-]{24,}"
)
"""What credentials look like."""
DOCKERFILE: Final = "sandbox_images/worker/Dockerfile"
PACKAGES: Final = ("swe_rollout", "operator/rollout_operator")
"""The packages in the wheel; nothing else is in it."""
_LARGEST_WHEEL_MIB: Final = 5
_SECTION: Final = re.compile(
    r"^## (?P<version>\S+)(?: - (?P<date>\S+))?\n(?P<text>.*?)(?=^## |\Z)",
    re.MULTILINE | re.DOTALL,
)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a release."""

    name: str
    problems: Callable[[Path], list[str]]
    """Return the checkout's problems; each says what is wrong, and how to fix it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks, or those that are named; return 1 if one fails."""
    checks = {check.name: check for check in CHECKS}
    parser = argparse.ArgumentParser(prog="scripts/release-check", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"{', '.join(checks)}; all of them by default")
    chosen: list[str] = parser.parse_args(arguments).name or list(checks)
    if unknown := set(chosen) - checks.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    failed = 0
    for name in dict.fromkeys(chosen):
        problems = checks[name].problems(Checkout.here().root)
        failed += bool(problems)
        print(f"{name:<10} {'FAILED' if problems else 'ok'}")
        print("".join(f"  {problem}\n" for problem in problems), end="", flush=True)
    return 1 if failed else 0


def version_problems(root: Path) -> list[str]:
    """Return where the version differs from the one in pyproject.toml."""
    version = recipe.project().version
    try:
        canonical = str(Version(version))
    except InvalidVersion:
        return [f"pyproject.toml: {version} is no version of Python packages (PEP 440)"]
    problems = []
    if canonical != version:
        problems.append(f"pyproject.toml: write {version} as {canonical}")
    chart = yaml.safe_load((root / FOLDER / "Chart.yaml").read_text(encoding="utf-8"))
    code = (root / "swe_rollout" / "__init__.py").read_text(encoding="utf-8")
    stated = re.search(r'^__version__ = "(.*)"$', code, re.MULTILINE)
    dockerfile = (root / DOCKERFILE).read_text(encoding="utf-8")
    label = re.search(r'image\.version="(.*)"', dockerfile)
    found = {
        "swe_rollout/__init__.py": stated[1] if stated else "none",
        DOCKERFILE: label[1] if label else "none",
        f"{FOLDER}/Chart.yaml": chart["version"],
        f"{FOLDER}/Chart.yaml (appVersion)": chart["appVersion"],
    }
    cure = "write it there, and run scripts/generate"
    problems += [
        f"{place}: {other}, and pyproject.toml has {version}; {cure}"
        for place, other in found.items()
        if other != version
    ]
    return problems


def changelog_problems(text: str, version: str) -> list[str]:
    """Return what the changelog lacks for this version."""
    sections = list(_SECTION.finditer(text))
    unreleased = [each for each in sections if each["version"] == "Unreleased"]
    releases = [each for each in sections if each["version"] != "Unreleased"]
    cure = f"rename `## Unreleased` to `## {version} - YYYY-MM-DD`, and add an empty one above"
    if not releases or releases[0]["version"] != version:
        newest = releases[0]["version"] if releases else "none"
        return [f"CHANGELOG.md: the newest release is {newest}, not {version}; {cure}"]
    problems = []
    if not _DATE.fullmatch(releases[0]["date"] or ""):
        problems.append(f"CHANGELOG.md: `## {version}` has no date: `## {version} - YYYY-MM-DD`")
    if "- " not in releases[0]["text"]:
        problems.append(f"CHANGELOG.md: `## {version}` says nothing; write what changed for users")
    if any("- " in each["text"] for each in unreleased):
        problems.append(f"CHANGELOG.md: Unreleased has entries; move them below `## {version}`")
    return problems


def generated_problems(root: Path) -> list[str]:
    """Return the generated files that differ from the code."""
    return [
        f"{name} differs from the code; run scripts/generate"
        for name, text in generated().items()
        if not (root / name).exists() or (root / name).read_text(encoding="utf-8") != text
    ]


def lock_problems(root: Path) -> list[str]:
    """Return the locks that don't match pyproject.toml."""
    return _output_if_it_fails([root / "scripts" / "lock", "--check"], root)


def package_problems(root: Path) -> list[str]:
    """Build wheel and sdist twice, and return their problems."""
    with tempfile.TemporaryDirectory() as scratch:
        built = [_built(root, Path(scratch) / name) for name in ("first", "second")]
        if isinstance(built[0], str) or isinstance(built[1], str):
            return [f"the build failed: {each}" for each in built if isinstance(each, str)]
        return [
            *(
                f"{one.name} is not reproducible: two builds are not the same bytes"
                for one, two in zip(*built, strict=True)
                if _sha256(one) != _sha256(two)
            ),
            *wheel_problems(built[0][0], _tracked(root, PACKAGES)),
            *sdist_problems(built[0][1], _tracked(root, ["."])),
        ]


def wheel_problems(wheel: Path, tracked: set[str]) -> list[str]:
    """Return what a wheel lacks, and what does not belong in it; `tracked` are git's files."""
    expected = {name.removeprefix("operator/") for name in tracked}
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
        keys = sorted(name for name in names if KEYS.search(opened.read(name)))
        infos = {name for name in opened.namelist() if ".dist-info/" in name}
    problems = [f"the wheel lacks {name}" for name in sorted(expected - names)]
    problems += [
        f"the wheel has {name}, which git does not; remove it, or commit it"
        for name in sorted(names - expected)
    ]
    problems += [
        f"the wheel has tests: {name}"
        for name in sorted(names)
        if {"tests", "conftest.py"} & {*name.split("/")}
    ]
    problems += [f"the wheel has what looks like a credential: {name}" for name in keys]
    if not any(name.endswith("/licenses/LICENSE") for name in infos):
        problems.append("the wheel lacks the licence; see license-files in pyproject.toml")
    if (size := wheel.stat().st_size >> 20) >= _LARGEST_WHEEL_MIB:
        problems.append(f"the wheel has {size} MiB: is there data in it?")
    return problems


def sdist_problems(sdist: Path, tracked: set[str]) -> list[str]:
    """Return what does not belong in an sdist; `tracked` are git's files."""
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    return [
        f"the sdist has {name}, which git does not; remove it, or commit it"
        for name in sorted(names - tracked - {"PKG-INFO"})
    ]


def sbom_problems(root: Path) -> list[str]:
    """Return why no SBOM can be made, for example because of an unaccepted licence."""
    try:
        sbom.sbom(root, sbom.packages(root))
    except ScriptError as error:
        return ["\n  ".join(str(error).splitlines())]
    return []


def tree_problems(root: Path) -> list[str]:
    """Return uncommitted changes."""
    status = _git(root, "status", "--porcelain").splitlines()
    return [f"not committed: {line[3:]}" for line in status]


CHECKS: Final = (
    Check("version", version_problems),
    Check(
        "changelog",
        lambda root: changelog_problems(
            (root / "CHANGELOG.md").read_text(encoding="utf-8"), recipe.project().version
        ),
    ),
    Check("generated", generated_problems),
    Check("locks", lock_problems),
    Check("packages", package_problems),
    Check("sbom", sbom_problems),
    Check("tree", tree_problems),
)


def _built(root: Path, folder: Path) -> tuple[Path, Path] | str:
    """Build the wheel and the sdist; return them, or why that failed."""
    epoch = _git(root, "log", "-1", "--format=%ct").strip()
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", folder, "-t", "wheel", "-t", "sdist"],
        cwd=root,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return (done.stdout + done.stderr).strip()[-500:]
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def _tracked(root: Path, paths: Iterable[str]) -> set[str]:
    return {*_git(root, "ls-files", "-z", "--", *paths).split("\0")} - {""}


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def _output_if_it_fails(command: list[Path | str], root: Path) -> list[str]:
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else (done.stdout + done.stderr).strip().splitlines()[-20:]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
