"""Find the tests of each release pair that the fix repairs, and those that it must not break.

For each interpreter: two runs on the new release (their intersection drops ids that contain a time
or a random number) and one on the old release with the new tests. Each is in a sandbox of its own,
without network. Writes `release_pairs_tests.yaml`; `git diff` shows what has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

from swe_rollout.datasets.release_pair_recipes import TestLists, load_pairs
from swe_rollout.datasets.release_pairs import load
from swe_rollout.spec.sandbox import LocalSandbox, SandboxSpec
from swe_rollout.types.instance import Expected, Instance
from swe_rollout.worker.standalone import Wanted, open_sandbox

OUTPUT: Final = Path(__file__).parents[3] / "swe_rollout/datasets/release_pairs_tests.yaml"
HEADER: Final = """\
# Written by scripts/record-release-pairs, not by hand: the tests that decide each release pair.
"""
_SUMMARY: Final = re.compile(r"^(PASSED|FAILED|ERROR|XPASS|XFAIL) (\S+)( .*)?$", re.MULTILINE)
_OUTPUT_BYTES: Final = 64 << 20
_PLAIN: Final = SandboxSpec(local=LocalSandbox(isolation="none"))
"""Copies of the image's folders, which any interpreter of this machine can read."""
_INTERPRETER: Final = """\
mkdir -p ~/bin && printf '#!/bin/sh\\nexec "%s" "$@"\\n' "$PYTHON" >~/bin/python3 \
&& chmod +x ~/bin/python3 && PATH=~/bin:$PATH"""
"""Lets `python3` be that interpreter, by a script: a link would lose a virtual environment."""


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
        found[name] = asyncio.run(record(name, options.python or [sys.executable]))
    lists = {name: TestLists.of(expected) for name, expected in found.items()}
    plain = msgspec.to_builtins(lists, builtin_types=(str,))
    dumped = yaml.safe_dump(plain, sort_keys=False, width=1000, allow_unicode=True)
    OUTPUT.write_text(HEADER + dumped, encoding="utf-8")
    return 0


async def record(name: str, interpreters: Sequence[str]) -> Expected:
    """Return the tests that two golden runs and one base run agree on, with every interpreter."""
    [instance] = await load([name], on_progress=print)
    golden: list[frozenset[str]] = []
    base: list[frozenset[str]] = []
    for python in interpreters:
        new = (instance.test_patch, instance.gold_patch)
        golden += [await _passed(instance, new, python), await _passed(instance, new, python)]
        base.append(await _passed(instance, (instance.test_patch,), python))
    stable = frozenset.intersection(*golden)
    return Expected(
        fail_to_pass=tuple(sorted(stable - frozenset.union(*base))),
        pass_to_pass=tuple(sorted(stable & frozenset.intersection(*base))),
    )


async def _passed(instance: Instance, patches: Sequence[str], python: str) -> frozenset[str]:
    """Return the tests that pass in a fresh sandbox with these patches applied.

    Ids with a blank are left out: log parsers see only the first word.
    """
    wanted = Wanted(instance.image, instance.workdir, harmless=True)
    script = " && ".join((_INTERPRETER, *instance.evaluation.commands))
    async with open_sandbox(_PLAIN, wanted, on_note=lambda _: None) as sandbox:
        for patch in patches:
            applied = await sandbox.exec(["git", "apply", "-"], stdin=patch.encode())
            if applied.exit_code:
                sys.exit(applied.stderr.decode())
        done = await sandbox.exec(
            ["unshare", "--map-root-user", "--net", "sh", "-c", script],
            env={"PYTHON": python, "PATH": os.defpath},
            timeout_s=instance.evaluation.timeout_s or 1800.0,
            max_output=_OUTPUT_BYTES,
        )
    log = done.stdout.decode(errors="replace")
    passed = {m[2] for m in _SUMMARY.finditer(log) if m[1] == "PASSED" and not m[3]}
    passed -= {m[2] for m in _SUMMARY.finditer(log) if m[1] != "PASSED"}
    if not passed:
        sys.exit(f"no test passed with {python}:\n{log[-2000:]}{done.stderr.decode()[-2000:]}")
    print(f"  {python}: {len(passed)} passed; {log.strip().rsplit(chr(10), 1)[-1].strip('= ')}")
    return frozenset(passed)


if __name__ == "__main__":
    sys.exit(main())
