"""`diff`: what differs between two jobs, or between two episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from swe_rollout.cli.interrupt import run_async
from swe_rollout.cli.job_address import JobLocation, ViewTarget, find_targets
from swe_rollout.cli.job_tables import write_left_out
from swe_rollout.cli.options import (
    Context,
    Form,
    Namespace,
    OutputFormat,
    StoredAddress,
    complete_address,
)
from swe_rollout.cli.output import say, write_data, write_lines, write_table
from swe_rollout.cli.stored_work import targeted
from swe_rollout.errors import InternalError
from swe_rollout.text.escaping import printable
from swe_rollout.text.formatting import format_number

if TYPE_CHECKING:
    from swe_rollout.export.episode_comparison import EpisodeComparison
    from swe_rollout.export.job_comparison import (
        JobComparison,
        JobSide,
        QuantityChange,
        TaskChange,
        TaskNumbers,
    )
    from swe_rollout.store.damage import DamagedRecord
    from swe_rollout.types.trajectory import Trajectory

OtherAddress = Annotated[
    str,
    typer.Argument(
        metavar="OTHER",
        help="The job or the episode that it is compared with.",
        autocompletion=complete_address,
    ),
]
_TASKS_SHOWN = 20
_TESTS_SHOWN = 20


def diff(
    address: StoredAddress,
    other: OtherAddress,
    namespace: Namespace = None,
    context: Context = None,
    *,
    output: Form = OutputFormat.TABLE,
) -> None:
    """Compare two jobs, or two episodes.

    For jobs, show settings, means, failures, flipped tasks, and which differences are significant
    over the shared tasks. For episodes, show the first differing turn and token, tests and patch.

    swe-rollout diff runs/before runs/after

    swe-rollout diff runs/demo/sqlparse-0.5.2/0 runs/demo/sqlparse-0.5.2/1 -o json
    """
    run_async(_compare([address, other], JobLocation(namespace, context), output), on_note=say)


async def _compare(addresses: list[str], location: JobLocation, output: OutputFormat) -> None:
    from swe_rollout.export.episode_comparison import compare_episodes

    first, second = await find_targets(addresses, location)
    named = dict(zip(("first", "second"), addresses, strict=True))
    if first.episode is None:
        await _compare_jobs(first, second, named, output)
        return
    compared = compare_episodes(await _read(first), await _read(second))
    if output.is_data:
        write_data({**named, **compared.to_dict()}, output)
    else:
        _write_episodes(compared, output)


async def _compare_jobs(
    first: ViewTarget, second: ViewTarget, named: dict[str, str], output: OutputFormat
) -> None:
    from swe_rollout.export.job_comparison import compare_jobs

    damaged: list[DamagedRecord] = []
    sides = [await _count(target, damaged) for target in (first, second)]
    found = compare_jobs(*sides)
    if output.is_data:
        write_data({**named, **found.to_dict()}, output)
    else:
        _write_jobs(found, sides, output)
    write_left_out(damaged)


async def _read(target: ViewTarget) -> Trajectory:
    if target.episode is None:
        raise InternalError(f"{target.ref} is no episode")
    return await target.open_store().read(target.episode)


async def _count(target: ViewTarget, damaged: list[DamagedRecord]) -> JobSide:
    from swe_rollout.export.job_comparison import JobSide

    store = target.open_store()
    side = JobSide((await store.plan(target.ref.job)).job)
    async for trajectory in targeted(store, target, damaged):
        side.add(trajectory)
    return side


def _write_jobs(found: JobComparison, sides: list[JobSide], output: OutputFormat) -> None:
    from swe_rollout.export.job_comparison import Flip

    changed = [each for each in found.tasks if each.flip is not Flip.SAME or each.change]
    if output is OutputFormat.NAME:
        write_lines(each.instance for each in changed)
        return
    write_table(
        [
            *("MEAN OF", "FIRST#", "SECOND#", "CHANGE#", "95% INTERVAL#", "SIGN TEST P#+"),
            *("TASKS#", "IS"),
        ],
        [_quantity(each) for each in found.quantities],
        output,
    )
    if found.settings:
        write_lines([""])
        rows = [
            [each.path, each.before or "unset", each.after or "unset"] for each in found.settings
        ]
        write_table(["SETTING", "FIRST", "SECOND"], rows)
    outcomes = _outcomes(found)
    if outcomes:
        write_lines([""])
        write_table(["OUTCOME", "FIRST#", "SECOND#"], outcomes)
    shown = changed if output is OutputFormat.WIDE else changed[:_TASKS_SHOWN]
    if shown:
        write_lines([""])
        columns = ["TASK", "RESOLVED#", "REWARD#", "RESOLVED#", "REWARD#", "CHANGE#", "IS"]
        write_table(columns, [_task(each) for each in shown])
    if len(changed) > len(shown):
        say(f"{len(changed) - len(shown)} more tasks changed: -o wide lists them")
    if not found.settings:
        say("the settings are the same")
    flips = " · ".join(f"{count} {flip}" for flip, count in found.flips.items())
    counts = " and ".join(str(side.outcomes.committed) for side in sides)
    say(f"{counts} episodes · tasks: {flips or 'none'}")


def _quantity(change: QuantityChange) -> list[str]:
    form = ",.2f" if change.name in ("reward", "resolved", "failed") else ",.1f"
    paired = change.paired
    return [
        change.name.replace("_", " "),
        format_number(change.before, form),
        format_number(change.after, form),
        format_number(paired.mean, f"+{form}"),
        " … ".join(format_number(each, f"+{form}") for each in paired.interval or (None,)),
        format_number(paired.p, ".3f"),
        str(paired.pairs),
        paired.certainty.value,
    ]


def _task(change: TaskChange) -> list[str]:
    sides = [*_numbers(change.before), *_numbers(change.after)]
    return [change.instance, *sides, format_number(change.change, "+,.2f"), change.flip.value]


def _numbers(side: TaskNumbers | None) -> list[str]:
    if side is None:
        return ["–", "–"]
    return [f"{side.resolved}/{side.samples}", format_number(side.mean_reward)]


def _outcomes(found: JobComparison) -> list[list[str]]:
    rows = []
    for label, (first, second) in (("", found.stop_reasons), (" failed", found.failures)):
        for name in sorted(first.keys() | second.keys()):
            counts = [str(side.get(name, 0)) for side in (first, second)]
            rows.append([name.replace("_", " ") + label, *counts])
    return rows


def _write_episodes(found: EpisodeComparison, output: OutputFormat) -> None:
    differing = [each for each in found.facts if each.differs]
    if output is OutputFormat.NAME:
        write_lines(each.name for each in differing)
        return
    facts = found.facts if output is OutputFormat.WIDE else differing
    if facts:
        write_table(["FACT", "FIRST", "SECOND"], [[f.name, f.before, f.after] for f in facts])
    tests = found.tests if output is OutputFormat.WIDE else found.tests[:_TESTS_SHOWN]
    if tests:
        write_lines([""])
        write_table(["TEST", "FIRST", "SECOND"], [[f.name, f.before, f.after] for f in tests])
    if found.patch_diff:
        write_lines(["", *(printable(line) for line in found.patch_diff)])
    if len(found.tests) > len(tests):
        say(f"{len(found.tests) - len(tests)} more tests differ: -o wide lists them")
    token = found.first_token
    if token is not None:
        who = "sampled by the policy" if token.sampled else "written by the harness"
        ids = " and ".join(
            "the end" if each is None else str(each) for each in (token.before, token.after)
        )
        say(f"token {token.index} is the first that differs: {ids}, {who}")
    turn = found.first_turn
    if turn is None:
        say("both sampled the same text")
        return
    say(f"turn {turn.index} is the first whose sampled text differs")
    for label, text in (("first", turn.before), ("second", turn.after)):
        say(f"  {label:<6} {' '.join(text.split()) or '(no such turn)'}")
