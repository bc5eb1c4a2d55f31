"""Find the tests of each release pair that the fix repairs, and those that it must not break.

For each interpreter: two runs on the new release (their intersection drops ids that contain a time
or a random number) and one on the old release with the new tests. All in scratch copies, without
network. Writes `release_pairs_tests.yaml`; `git diff` shows what has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from swe_rollout.datasets.release_pair_recipes import TestLists, load_pairs
from swe_rollout.datasets.release_pairs import load
from swe_rollout.sandbox.local.images import LocalImage, load_image
from swe_rollout.types.instance import Expected, Instance

OUTPUT = Path(__file__).parents[3] / "swe_rollout/datasets/release_pairs_tests.yaml"
HEADER = """\
# Written by scripts/record-release-pairs, not by hand: the tests that decide each release pair.
"""
_SUMMARY = re.compile(r"^(PASSED|FAILED|ERROR|XPASS|XFAIL) (\S+)( .*)?$", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="scripts/record-release-pairs", description=__doc__)
    parser.add_argument("names", nargs="*", help="projects; none: all")
    parser.add_argument(
        "--python",
        action="append",
        help="an interpreter to run the tests with; repeatable: the results of all are intersected",
    )
    options = parser.parse_args(arguments)
    found = {name: pair.expected for name, pair in load_pairs().items()}
    for name in options.names or found:
        [instance] = asyncio.run(load([name], on_progress=print))
        found[name] = record(instance, options.python or [sys.executable])
    lists = {name: TestLists.of(expected) for name, expected in found.items()}
    plain = msgspec.to_builtins(lists, builtin_types=(str,))
    dumped = yaml.safe_dump(plain, sort_keys=False, width=1000, allow_unicode=True)
    OUTPUT.write_text(HEADER + dumped, encoding="utf-8")
    return 0


def record(instance: Instance, interpreters: Sequence[str]) -> Expected:
    """Return the tests that two golden runs and one base run agree on, with every interpreter."""
    golden: list[frozenset[str]] = []
    base: list[frozenset[str]] = []
    for python in interpreters:
        new = [instance.test_patch, instance.gold_patch]
        golden += [_run(instance, new, python), _run(instance, new, python)]
        base.append(_run(instance, [instance.test_patch], python))
    stable = frozenset.intersection(*golden)
    return Expected(
        fail_to_pass=tuple(sorted(stable - frozenset.union(*base))),
        pass_to_pass=tuple(sorted(stable & frozenset.intersection(*base))),
    )


def _run(instance: Instance, patches: Sequence[str], python: str) -> frozenset[str]:
    """Return the tests that pass in a scratch copy of the image with these patches applied."""
    image, folder = load_image(instance.image)
    with tempfile.TemporaryDirectory(prefix="release-pair-") as scratch_name:
        scratch = Path(scratch_name)
        for mount in image.mounts:
            shutil.copytree(folder / mount.source, scratch / mount.source, symlinks=True)
        testbed = scratch / "testbed"
        for patch in patches:
            subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=testbed, check=True)
        environment = image.env | {
            "PYTHONPATH": _import_path(image, scratch),
            "PATH": _path(scratch, python),
            "HOME": scratch_name,
            "LANG": "C.UTF-8",
        }
        done = subprocess.run(
            [*_without_network(), "sh", "-c", " && ".join(instance.evaluation.commands)],
            cwd=testbed,
            env=environment,
            capture_output=True,
            timeout=instance.evaluation.timeout_s,
            check=False,
        )
    passed = _passed(done.stdout.decode(errors="replace"))
    if not passed:
        sys.exit(f"no test passed with {python}:\n{(done.stdout + done.stderr).decode()[-2000:]}")
    print(f"  {python}: {len(passed)} passed")
    return passed


def _import_path(image: LocalImage, scratch: Path) -> str:
    """Return the image's PYTHONPATH, with its mounts in this scratch copy."""
    paths = []
    for entry in image.env["PYTHONPATH"].split(":"):
        [mount] = [m for m in image.mounts if Path(entry).is_relative_to(m.target)]
        paths.append(str(scratch / mount.source / Path(entry).relative_to(mount.target)))
    return ":".join(paths)


def _path(scratch: Path, python: str) -> str:
    """Return a PATH on which `python3` is this interpreter.

    A script, not a link: a link would lose a virtual environment.
    """
    folder = scratch / "bin"
    folder.mkdir()
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.defpath}"


def _without_network() -> list[str]:
    command = ["unshare", "--map-root-user", "--net"]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print("  warning: no network namespace here, the tests can use the network")
        return []
    return command


def _passed(log: str) -> frozenset[str]:
    """Parse ids that passed, except those with a blank: log parsers see only the first word."""
    passed = {m[2] for m in _SUMMARY.finditer(log) if m[1] == "PASSED" and not m[3]}
    return frozenset(passed - {m[2] for m in _SUMMARY.finditer(log) if m[1] != "PASSED"})


if __name__ == "__main__":
    sys.exit(main())
