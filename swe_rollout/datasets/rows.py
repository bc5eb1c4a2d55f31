"""Write instances as rows in SWE-bench's form, for other tools and for files to load again."""

from __future__ import annotations

from swe_rollout.datasets.official_parsers import official_name
from swe_rollout.errors import UsageError
from swe_rollout.types.instance import Instance, Rule


def to_row(instance: Instance) -> dict[str, object]:
    """Return the instance as a row that the source `swebench` reads back as the same task.

    Raises UsageError for a log parser that rows can't name.
    """
    evaluation = instance.evaluation
    log_parser = official_name(instance.log_parser)
    if log_parser is None:
        raise UsageError(
            f"{instance.instance_id} can't be written as a row",
            why=f"rows can't name the log parser {instance.log_parser}",
            fix="name it in the job's `grading.logParser`, and leave it out of the instance",
        )
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
        "log_parser": log_parser,
        "eval_type": "fail_only" if instance.rule is Rule.FAIL_ONLY else "pass_and_fail",
        "test_timeout_s": evaluation.timeout_s,
    }
    if evaluation.script is not None:
        return row | {"eval_script": evaluation.script}
    return row | {"test_cmd": list(evaluation.commands)}
