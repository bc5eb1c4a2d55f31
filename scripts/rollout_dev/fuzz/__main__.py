"""Fuzz code that reads untrusted input: `scripts/fuzz [SURFACE…] --inputs 10000 --seed 1`.

Every surface gets inputs made from its grammar and, by their structure, from real ones. It may only
raise documented errors, within ten seconds of processor time and 256 MiB for each input. Anything
else is a finding, which is minimised and kept under tests/fuzz_cases, where the unit tests run it
again. Exits with 1 if there are findings.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rollout_dev.fuzz.campaign import ChildProcess, Result, keep, run_surface
from rollout_dev.fuzz.surfaces import SURFACES, load
from rollout_dev.report import Report, Row, parser


def main(arguments: Sequence[str]) -> int:
    """Run the surfaces and print the results; return 0 if nothing was found."""
    options = parser("scripts/fuzz", __doc__)
    options.add_argument("surfaces", nargs="*", metavar="SURFACE", help="default: all")
    options.add_argument("--inputs", type=int, default=10_000, help="of each surface")
    options.add_argument("--seed", type=int, default=0, help="the same seed, the same inputs")
    options.add_argument("--parallel", type=int, default=2, help="processes")
    options.add_argument("--list", action="store_true", help="name the surfaces, and stop")
    options.add_argument("--forget", action="store_true", help="keep no input of a finding")
    given = options.parse_args(arguments)
    if given.list:
        print("\n".join(f"{name:16}{load(name).about}" for name in SURFACES))
        return 0
    if unknown := sorted(set(given.surfaces) - set(SURFACES)):
        known = ", ".join(SURFACES)
        sys.stderr.write(f"error: there is no surface {unknown[0]}\n  fix   {known}\n")
        return 2
    results = _run(given.surfaces or list(SURFACES), given)
    report = _report(results, given)
    return report.printed(as_json=given.json)


def _run(names: Sequence[str], given: Namespace) -> list[Result]:
    def one(name: str) -> Result:
        with ChildProcess() as child:
            result = run_surface(
                child, name, inputs=given.inputs, seed=given.seed, on_progress=_progress
            )
        sys.stderr.write(f"{name}: {result.inputs} inputs, {result.seconds:.0f} s\n")
        return result

    with ThreadPoolExecutor(given.parallel) as pool:
        return list(pool.map(one, names))


def _progress(result: Result) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{result.surface}: {result.inputs} \r")


def _report(results: Sequence[Result], given: Namespace) -> Report:
    rows, notes = [], [f"seed {given.seed}"]
    for result in results:
        hangs = [each for each in result.findings if each in {"hang", "waits without an end"}]
        figures = {
            "inputs": float(result.inputs),
            "samples": float(result.total.samples),
            "accepted": float(result.total.accepted),
            "refused": float(result.total.refused),
            "crashes": float(len(result.findings) - len(hangs)),
            "hangs": float(len(hangs)),
            "seconds": round(result.seconds, 1),
        }
        rows.append(Row(result.surface, figures))
        for finding in result.findings.values():
            path = None if given.forget else keep(finding)
            where = path.name if path else f"{len(finding.data)} bytes, not kept"
            notes.append(
                f"{finding.surface}: {finding.signature} ({finding.count} inputs, first "
                f"{finding.number}): {where}"
            )
            sys.stderr.write(f"\n{finding.surface}: {finding.signature}\n{finding.details}\n")
    ok = not any(result.findings for result in results)
    return Report("fuzz", tuple(rows), ok=ok, notes=tuple(notes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
