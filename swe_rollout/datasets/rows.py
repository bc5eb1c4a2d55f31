"""Instances as rows in SWE-bench's form, for other tools and for files that are loaded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swe_rollout.instance import Rule

if TYPE_CHECKING:
    from swe_rollout.instance import Instance


def to_row(instance: Instance) -> dict[str, object]:
    """The instance as a row that `load` reads back as the same task."""
    evaluation = instance.evaluation
    row: dict[str, object] = {
        "instance_id": instance.instance_id,
        "repo": instance.repo,
        "base_commit": instance.base_commit,
        "problem_statement": instance.problem_statement,
        "patch": instance.gold_patch,
        "test_patch": instance.test_patch,
        "FAIL_TO_PASS": list(instance.expected.fail_to_pass),
        "PASS_TO_PASS": list(instance.expected.pass_to_pass),
        "image": instance.image,
        "workdir": instance.workdir,
        "log_parser": instance.log_format.official,
        "eval_type": "fail_only" if instance.rule is Rule.FAIL_ONLY else "pass_and_fail",
        "test_timeout_s": evaluation.timeout_s,
    }
    if evaluation.script is not None:
        return row | {"eval_script": evaluation.script}
    return row | {"test_cmd": list(evaluation.commands)}
