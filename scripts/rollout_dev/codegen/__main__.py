"""Generate the CRD, the manifests that `swe-rollout install` applies, the chart, and the reference:
the page of the Python API, and the tables of jobs, tools, reward terms, metrics and options.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tomllib
from pathlib import Path
from typing import Final

import yaml

from rollout_dev.codegen.chart import bundle, chart
from rollout_dev.codegen.crd import custom_resource_definition
from rollout_dev.codegen.pages import filled
from rollout_dev.codegen.python_reference import python_page
from rollout_dev.codegen.reference import (
    gateway_blocks,
    job_blocks,
    metrics_blocks,
    reward_blocks,
    variable_blocks,
)
from rollout_dev.codegen.tools_reference import tools_blocks

ROOT: Final = Path(__file__).resolve().parents[3]
KUSTOMIZATION: Final = "manifests/kustomization.yaml"
CRD: Final = "manifests/crd/rolloutjobs.yaml"
INSTALL: Final = "swe_rollout/cli/install.yaml"
PYTHON: Final = "docs/reference/python.md"
_PAGES: Final = {
    "rolloutjob": job_blocks,
    "tools": tools_blocks,
    "rewards": reward_blocks,
    "metrics": metrics_blocks,
    "cli": variable_blocks,
    "gateway": gateway_blocks,
}
"""Pages of docs/reference, and what returns their generated blocks."""
_HEADER: Final = "# Made by scripts/generate; change {source} instead.\n"


def main() -> int:
    """Write files that differ, or with `--check` show the differences and return 1."""
    parser = argparse.ArgumentParser(prog="scripts/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    check: bool = parser.parse_args().check
    differing = 0
    for name, text in generated().items():
        path = ROOT / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before == text:
            continue
        differing += 1
        if check:
            old, new = before.splitlines(keepends=True), text.splitlines(keepends=True)
            sys.stdout.writelines(
                difflib.unified_diff(old, new, fromfile=name, tofile=f"{name}, from the code", n=1)
            )
        else:
            path.write_text(text, encoding="utf-8")
            print(name)
    if check and differing:
        sys.stderr.write("error: generated files differ from the code\n  fix   scripts/generate\n")
        return 1
    return 0


def generated() -> dict[str, str]:
    """Return the content of every generated file by its name."""
    crd = _HEADER.format(source="swe_rollout/spec") + yaml.dump(
        custom_resource_definition(), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        CRD: crd,
        INSTALL: _HEADER.format(source="manifests/")
        + bundle(ROOT / KUSTOMIZATION, {ROOT / CRD: crd}),
        **chart(ROOT / KUSTOMIZATION, {ROOT / CRD: crd}, project),
        PYTHON: python_page(),
        **{name: page(name) for name in map("docs/reference/{}.md".format, _PAGES)},
    }


def page(name: str) -> str:
    """Return a page of the reference with its blocks as the code has them."""
    return filled(ROOT / name, _PAGES[Path(name).stem]())


class _Dumper(yaml.SafeDumper):
    """Writes what occurs twice twice: people read these files."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base's signature
        return True


if __name__ == "__main__":
    sys.exit(main())
