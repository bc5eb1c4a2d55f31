"""Rows of every dataset become tasks as their own harnesses run them, proven on real rows."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from checkout import DATA
from ratios import growth
from swe_rollout.datasets import projects, swebench
from swe_rollout.datasets.row_files import Row
from swe_rollout.errors import DatasetError, Problem
from swe_rollout.grading.parsers import load_parser
from swe_rollout.types.instance import Expected, Instance, Rule
from swe_rollout.types.verdict import TestStatus
from unit.datasets.row_parts import SAMPLES

needs_data = pytest.mark.skipif(
    not (DATA / "swebench").is_dir(),
    reason="needs rows of the datasets: put SWE-bench's parquet files into swebench/, and rows of "
    "SWE-Gym, SWE-smith, SWE-rebench V2, Multi-SWE-bench and SWE-bench-Live into rows/NAME/, and "
    "name their folder in SWE_ROLLOUT_DATA",
)
COMMIT = "d5276398046ce4a102776a1e67dcac2884d80dfe"
COMMON = {name: value for name, value in SAMPLES["swe-bench"].items() if name != "instance_id"}
REBENCH, R2E = SAMPLES["swe-rebench"], SAMPLES["r2e-gym"]
PRO, LIVE = SAMPLES["swe-bench-pro"], SAMPLES["swe-bench-live"]


async def load(
    folder: Path, *rows: dict[str, object], name: str = "auto"
) -> list[Instance | Problem]:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    return list(await swebench.load("rows.jsonl", base_dir=folder, format=name))


async def one(folder: Path, row: dict[str, object]) -> Instance:
    [result] = await load(folder, row)
    assert isinstance(result, Instance), str(result)
    return result


async def real(uri: str) -> list[Instance]:
    results = await swebench.load(uri, base_dir=DATA)
    assert results
    for result in results:
        assert isinstance(result, Instance), str(result)
    return [result for result in results if isinstance(result, Instance)]


@needs_data
@pytest.mark.parametrize(
    ("name", "count", "is_python"),
    [
        *(("Verified_test", 500, True), ("Lite_test", 300, True), ("Lite_dev", 23, True)),
        ("Multilingual_test", 300, False),
    ],
)
async def test_every_official_row_loads_and_the_rules_agree_with_what_it_says(
    name: str, count: int, *, is_python: bool
) -> None:
    instances = await real(f"swebench/SWE-bench_{name}.parquet")
    assert len(instances) == count
    different = 0
    for instance in instances:
        assert instance.source == "swebench_v5"
        assert instance.image == projects.image_of(instance.instance_id)
        assert instance.workdir == "/testbed"
        assert instance.rule is Rule.F2P_P2P
        script = instance.evaluation.script
        assert script is not None
        load_parser(instance.log_parser)
        assert "created_at" in instance.extra
        if is_python:
            assert instance.log_parser == projects.project_of(instance.repo).log_parser
            own = projects.test_command(instance.repo, instance.test_patch)
            (said,) = re.findall(r"Start Test Output'\n(.*?)\n: '>>>>> End", script, re.DOTALL)
            assert own is not None
            different += own.splitlines()[-1].split() != said.split()
    # Some rows of astropy add options that only change how the log looks.
    assert different <= sum(each.repo == "astropy/astropy" for each in instances)


@needs_data
async def test_rows_of_other_languages_have_their_own_parsers() -> None:
    instances = await real("swebench/SWE-bench_Multilingual_test.parquet")
    counts = Counter(instance.log_parser for instance in instances)
    assert counts == {
        "cargo": 43, "phpunit": 43, "gotest": 42, "rspec_lines": 25, "karma": 17, "ant": 17,
        "maven": 16, "redis": 16, "ruby_unit": 14, "googletest": 11, "gradle": 10, "jest": 11,
        "tap": 9, "automake": 9, "minitest": 3, "cucumber": 2, "micropython": 5, "vitest": 5,
        "jest_json": 1, "doctest": 1,
    }  # fmt: skip


@needs_data
async def test_swe_gym() -> None:
    instances = await real("rows/swe-gym/moto.jsonl")
    assert len(instances) == 5
    first = instances[0]
    assert first.image == "xingyaoww/sweb.eval.x86_64.getmoto_s_moto-7365:latest"
    assert (first.workdir, first.rule, first.log_parser) == ("/testbed", Rule.F2P_P2P, "pytest")
    assert first.evaluation.commands[0].splitlines()[-1].startswith("pytest -n0 -rA tests/")
    assert {"hints_text", "responses_create_params", "subset", "split"} <= set(first.extra)


@needs_data
async def test_swe_smith() -> None:
    [task] = await real("rows/swe-smith/pandas-dev__pandas.95280573.pr_53652.json")
    assert task.image == "jyangballin/swesmith.x86_64.pandas-dev_1776_pandas.95280573"
    assert (task.repo, task.workdir) == ("pandas-dev/pandas", "/testbed")
    assert (task.rule, task.log_parser) == (Rule.F2P_P2P, "swesmith")
    test = "pandas/tests/indexing/test_datetime.py"
    assert task.evaluation.commands[-1] == (
        f"pytest --disable-warnings --color=no --tb=no --verbose {test}"
    )
    assert task.hidden_paths == task.test_files == (test,)
    bug = next(line for line in task.base_patch.splitlines() if line.startswith("-  "))
    assert f"+{bug[1:]}" in task.gold_patch.splitlines()
    assert task.base_commit is None, "the image's own commit is the one that the bug goes into"


@needs_data
async def test_swe_rebench_v2() -> None:
    [task] = await real("rows/swe-rebench-v2/sample.json")
    assert task.image == "docker.io/swerebenchv2/unidata-netcdf-c:1925-ad6bff3"
    assert task.workdir == "/netcdf-c"
    assert task.evaluation.commands == ("set -e", "make check")
    assert (task.rule, task.log_parser) == (Rule.PASS_SET_EQUAL, "automake")
    assert (len(task.expected.fail_to_pass), len(task.expected.pass_to_pass)) == (12, 177)


@needs_data
async def test_multi_swe_bench() -> None:
    instances = await real("rows/multi-swe-bench/google__gson.jsonl")
    assert len(instances) == 5
    first = instances[0]
    assert first.image == "mswebench/google_m_gson:pr-1787"
    assert (first.repo, first.workdir) == ("google/gson", "/home/gson")
    assert first.evaluation.commands == ("bash /home/run.sh",)
    assert (first.rule, first.log_parser) == (Rule.PASS_SUPERSET, "surefire")
    assert "/home/fix.patch" in first.hidden_paths
    assert "com.google.gson.interceptors.InterceptorTest" in first.expected.fail_to_pass
    assert first.problem_statement.startswith("TypeAdapterRuntimeTypeWrapper prefers cyclic")


@needs_data
async def test_a_crawled_row_of_swe_bench_live_is_a_task_that_can_not_be_graded() -> None:
    [task] = await real("rows/swe-bench-live/test-dataset.jsonl")
    assert task.image == "starryzhang/sweb.eval.x86_64.amoffat_1776_sh-744:latest"
    assert (task.rule, task.expected) == (Rule.NO_NEW_FAILURES, Expected())


async def test_swe_rebench(tmp_path: Path) -> None:
    task = await one(tmp_path, REBENCH)
    assert (task.source, task.workdir, task.rule) == ("rebench", "/testbed", Rule.F2P_P2P)
    assert task.image == "swerebench/sweb.eval.x86_64.me_1776_adder-1:latest"
    assert task.evaluation.commands[-1] == "pytest -rA tests/test_adder.py"
    assert not any("pip install" in c for c in task.evaluation.commands), "it is installed in place"
    config = {**REBENCH["install_config"], "install": "pip install ."}  # type: ignore[dict-item]
    copied = await one(tmp_path, REBENCH | {"install_config": json.dumps(config)})
    assert "pip install ." in copied.evaluation.commands


async def test_r2e_gym(tmp_path: Path) -> None:
    task = await one(tmp_path, R2E)
    assert task.instance_id == f"adder-{COMMIT}"
    assert task.problem_statement == "1 + 1 is 3"
    assert task.image == f"namanjain12/adder_final:{COMMIT}"
    assert (task.rule, task.log_parser) == (Rule.EXACT_MATCH, "r2e")
    assert task.evaluation.timeout_s == 300
    assert task.expected == Expected(
        ("test_a",), ("K.test_b",), {"test_c": TestStatus.FAILED, "": TestStatus.ERROR}
    )
    assert task.gold_patch == (
        "diff --git a/adder.py b/adder.py\nindex 1..2 100644\n--- a/adder.py\n+++ b/adder.py\n"
        "@@ -1,2 +1 @@ def add\n x\n-a\n+b\n\\ No newline at end of file\n"
    )
    assert set(task.hidden_paths) == {"/r2e_tests", "r2e_tests", "run_tests.sh"}
    assert task.extra == {"num_non_test_lines": 3}


@pytest.mark.parametrize(
    ("row", "column", "piece"),
    [(R2E, "problem_statement", "[ISSUE]"), (LIVE, "log_parser", "\n")],
)
def test_a_hostile_text_is_read_in_linear_time(
    row: dict[str, object], column: str, piece: str
) -> None:
    def read(count: int) -> None:
        swebench.instance_of(Row("", row | {column: f"{piece * count}x"}))

    assert growth(read, 8_000, 32_000) < 3


async def test_swe_bench_pro(tmp_path: Path) -> None:
    task = await one(tmp_path, PRO)
    assert task.image == "jefzda/sweap-images:me.adder-me__adder-d527"
    assert (task.workdir, task.rule, task.log_parser) == (
        "/app", Rule.PASS_SUPERSET, "json_results"
    )  # fmt: skip
    assert task.expected.fail_to_pass == ("tests/a.js | adds", "it's")
    assert task.evaluation.timeout_s == 3600
    assert any("'tests/a.js,tests/b c.js'" in command for command in task.evaluation.commands)
    assert "Requirements:\nIt must add." in task.problem_statement
    untagged = await one(tmp_path, PRO | {"dockerhub_tag": None})
    assert untagged.image == "jefzda/sweap-images:me.adder-me__adder-d527"
    [apart] = await load(tmp_path, PRO | {"run_script": None})
    assert "run_script: missing; join it from the dataset's run_scripts" in str(apart)


async def test_swe_bench_live(tmp_path: Path) -> None:
    task = await one(tmp_path, LIVE)
    assert (task.workdir, task.rule, task.log_parser) == (
        "/testbed", Rule.NO_NEW_FAILURES, "pytest"
    )  # fmt: skip
    assert task.image == "starryzhang/sweb.eval.x86_64.me_1776_adder-1"
    assert task.evaluation.timeout_s == 9000
    code = "import re\ndef parser(log):\n    return {}\n"
    own = await one(tmp_path, LIVE | {"log_parser": code})
    assert own.log_parser == "json_results"
    assert any(code in command for command in own.evaluation.commands), "it runs in the sandbox"
    [bad] = await load(tmp_path, LIVE | {"FAIL_TO_PASS": []})
    assert "FAIL_TO_PASS: expected at least one test id" in str(bad)


async def test_columns_that_are_not_read_are_kept_and_do_not_change_the_task(
    tmp_path: Path,
) -> None:
    row = COMMON | {"instance_id": "a"}
    task = await one(tmp_path, row)
    more = await one(tmp_path, row | {"difficulty": "easy", "meta": {"score": [1, 2.5, None]}})
    assert more.extra == {"difficulty": "easy", "meta": {"score": [1, 2.5, None]}}
    assert more.digest == task.digest


async def test_a_format_can_be_named_and_an_unknown_one_lists_those_that_exist(
    tmp_path: Path,
) -> None:
    [refused] = await load(tmp_path, LIVE, name="swe-rebench-v2")
    assert "install_config: missing" in str(refused)
    with pytest.raises(DatasetError) as caught:
        await load(tmp_path, LIVE, name="swe-bnech")
    assert "known are auto, swe-bench, swe-smith" in str(caught.value.problems[0])


async def test_a_rows_own_command_makes_it_a_row_of_swe_bench(tmp_path: Path) -> None:
    own = await one(tmp_path, LIVE | {"test_cmd": "make test"})
    assert (own.source, own.evaluation.commands) == ("swebench", ("make test",))
    script = await one(tmp_path, REBENCH | {"eval_script": "true"})
    assert script.source == "swebench_v5"


async def test_rows_of_several_datasets_may_be_in_one_file(tmp_path: Path) -> None:
    results = await load(tmp_path, REBENCH, R2E, PRO, LIVE | {"instance_id": "x"}, {"a": 1})
    sources = [r.source if isinstance(r, Instance) else "refused" for r in results]
    assert sources == ["rebench", "r2e", "swe_pro", "swe_live", "refused"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (R2E | {"expected_output_json": "{"}, "expected an object of test id to status"),
        (
            R2E | {"expected_output_json": '{"a": "MAYBE"}'},
            "PASSED, FAILED or ERROR; found 'MAYBE'",
        ),
        (R2E | {"parsed_commit_content": "{}"}, "expected a parsed commit with `file_diffs`"),
        (R2E | {"commit_hash": "main"}, "commit_hash: expected a commit id"),
        (REBENCH | {"install_config": {"log_parser": "x"}}, "install_config.test_cmd: missing"),
        (
            REBENCH | {"install_config": {"test_cmd": "t", "log_parser": "parse_log_r"}},
            "install_config.log_parser: there is no parser 'parse_log_r'",
        ),
        (PRO | {"dockerhub_tag": "a b"}, "dockerhub_tag: expected the tag of an image"),
        (COMMON | {"instance_id": "a", "repo": "swesmith/a__b.1", "patch": ""}, "puts the bug in"),
    ],
)
async def test_a_wrong_field_is_named(tmp_path: Path, row: dict[str, object], message: str) -> None:
    [result] = await load(tmp_path, row)
    assert isinstance(result, Problem)
    assert message in str(result)
    assert str(result).startswith("rows.jsonl:1: ")
