"""Job files: accepted ones, and messages; more of those in e2e/wrong_uses/job_file.yaml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from swe_rollout.errors import SpecError
from swe_rollout.spec.fields import fields_meant
from swe_rollout.spec.load import Setting, load_job
from swe_rollout.spec.template import template
from unit.spec.spec_parts import GOOD, parsed, problems

STORE = ("spec", "store", "uri")


def test_a_short_file_gets_every_default() -> None:
    job = parsed(GOOD)

    assert job.metadata.name == "demo"
    assert job.spec.limits.turns == 50
    assert job.spec.sandbox.local is not None


def test_the_resolved_job_is_a_job_file_again(tmp_path: Path) -> None:
    job = parsed(GOOD, "spec.dataset.slice=0:40", "spec.store.uri=file:///runs")

    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job.to_yaml_dict()))

    assert load_job(path) == job


def test_the_template_is_a_job_file() -> None:
    job = parsed(template())

    assert job.spec.policy.scripted is not None
    assert job.spec.samples == 4


def test_all_mistakes_are_reported_at_once_in_the_order_of_their_lines() -> None:
    text = GOOD.replace("name: demo", "name: My Job") + (
        "  sampels: 4\n  parallelism: ten\n  limits:\n    turns: 0\n  agent: {toolFormat: a b}\n"
    )

    assert problems(text) == [
        (
            "job.yaml:3: metadata.name: expected lower-case letters, digits and `-`,"
            " such as `my-job`, found 'My Job'"
        ),
        "job.yaml:7: spec.sampels: no such field; did you mean `samples`?",
        "job.yaml:8: spec.parallelism: expected an integer, found 'ten'",
        "job.yaml:10: spec.limits.turns: must be at least 1, found 0",
        (
            "job.yaml:11: spec.agent.toolFormat: expected a name, or module:attr such as"
            " my_extensions:lint, found 'a b'"
        ),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  max_new_tokens: 5", "`maxNewTokens` belongs under `spec.limits`"),
        ("  frobnicate: x", "spec.frobnicate: no such field; expected dataset, samples"),
        ("  samples: true", "spec.samples: expected an integer, found true"),
        ("  samples:", "spec.samples: expected an integer, found nothing"),
        ("  sampling: {topP: 1.5}", "spec.sampling.topP: must be at most 1, found 1.5"),
        ("  sampling: {topP: 0}", "spec.sampling.topP: must be above 0, found 0"),
        ("  limits: 5", "spec.limits: expected a mapping of fields, found 5"),
        ("  limits: {toolSeconds: .inf}", "expected a finite number, found inf"),
        ("  agent: {tools: [{use: a, with: {x: .nan}}]}", "a finite number, found nan"),
        (
            "  agent: {use: a, with: {x: [-1e999]}}",
            "with.x[0]: expected a finite number, found -inf",
        ),
        (
            '  agent: {tools: [{use: a, with: {x: [{y: "a\\0b"}]}}]}',
            "tools[0].with.x[0].y: a text can't contain NUL",
        ),
        ("  agent: {tools: [5]}", "spec.agent.tools[0]: expected a mapping of fields, found 5"),
        ("  agent: {tools: ['a b']}", "spec.agent.tools[0].use: expected a name, or module:attr"),
        ("  agent: {tools: [{with: {}}]}", "spec.agent.tools[0].use: missing"),
        ("  agent: {tools: [{use: a, whit: {}}]}", "spec.agent.tools[0].whit: no such field"),
        (
            "  store: {uri: runs}",
            "spec.store.uri: expected a file://, s3://, gs:// or az:// address",
        ),
        (
            '  agent: {promptsFile: "a\\0b"}',
            "spec.agent.promptsFile: expected a path without control",
        ),
        ('  fork: {uri: "s3://b/\\0/j", instance: a, sample: 0, turn: 1}', "without control"),
        ("  sandbox: {}", "spec.sandbox: set exactly one of local, pod, kodo, backend; found none"),
    ],
)
def test_each_mistake_is_reported_on_its_line_with_a_fix(line: str, expected: str) -> None:
    (found,) = problems(f"{GOOD}{line}\n")

    assert found.startswith("job.yaml:7: spec.")
    assert expected in found


def test_a_missing_field_is_on_the_line_of_what_should_hold_it() -> None:
    (found,) = problems(GOOD.replace("  policy: {scripted: {}}\n", ""))

    assert found.startswith("job.yaml:4: spec.policy: missing: The policy")
    assert "sglang, scripted" in found


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("# nothing\n", "job.yaml: empty"),
        ("just words", "job.yaml:1: expected the fields of a RolloutJob, found plain text"),
        (GOOD + "  a: b: c\n", "job.yaml:7: not YAML: mapping values are not allowed here"),
        ("a: \0\n", "job.yaml:1: a control character; expected text"),
        ("[" * 800, "job.yaml: nested too deeply"),
        ("a:\n  " + "[" * 100 + "]" * 100, "job.yaml:2: nested too deeply"),
        ("a: " + "x" * (1 << 18), "job.yaml: longer than 256 KiB"),
        ("a: &a [*a]", "job.yaml:1: its aliases expand without bound"),
    ],
)
def test_text_that_is_not_a_job_gets_one_line(text: str, begin: str) -> None:
    (found,) = problems(text)

    assert found.startswith(begin)


def test_an_alias_bomb_is_refused_without_being_expanded() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]

    (found,) = problems("\n".join(rows))

    assert "aliases expand without bound" in found


def test_aliases_and_merges_of_ordinary_size_are_read() -> None:
    job = parsed(
        GOOD.replace("{name: demo}", "{name: demo, labels: &l {a: b}, annotations: {<<: *l, c: d}}")
    )

    assert job.metadata.annotations == {"a": "b", "c": "d"}


def test_tags_are_never_executed() -> None:
    found = problems(GOOD + "  store: !!python/object/apply:os.system [exit 1]\n")

    assert "job.yaml:7: spec.store: the tag" in found[0]


@pytest.mark.parametrize("text", ["0:40", "1:30", "::10"])
def test_a_slice_needs_no_quotes(text: str) -> None:
    job = parsed(GOOD.replace("{releasePairs: {}}", f"\n    releasePairs: {{}}\n    slice: {text}"))

    assert job.spec.dataset.slice == text


def test_overrides_are_yaml_on_top_of_the_file() -> None:
    job = parsed(
        GOOD + "  samples: 2\n",
        "spec.samples=8",
        "spec.sandbox.pod={namespace: agents}",
        "spec.policy.scripted.scenarios=[gold]",
        "metadata.name='123'",
    )

    assert job.spec.samples == 8
    assert job.spec.sandbox.pod is not None
    assert job.spec.sandbox.pod.namespace == "agents"
    assert job.spec.policy.scripted is not None
    assert job.spec.policy.scripted.scenarios == ("gold",)
    assert job.metadata.name == "123"


def test_null_removes_a_field_so_that_variants_can_be_changed() -> None:
    text = GOOD + "  sandbox: {local: {}}\n"

    job = parsed(text, "spec.sandbox.local=null", "spec.sandbox.pod={}")

    assert job.spec.sandbox.local is None
    assert job.spec.sandbox.pod is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spec.samples", "--set spec.samples: write it as path=value: spec.samples=4"),
        ("=3", "--set =3: write it as path=value: spec.samples=4"),
        ("spec.samples=[", "--set spec.samples: not YAML"),
        ("metadata.name.x=1", "--set metadata.name.x: 'demo' has no fields"),
    ],
)
def test_a_wrong_override_is_reported_as_such(text: str, expected: str) -> None:
    (found,) = problems(GOOD, text)

    assert found.startswith(expected)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())

    assert load_job(path).metadata.name == "demo"


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        (
            "url: 'http://me:key@sglang:30000'",
            "without credentials: name the key's variable in api",
        ),
        ("retries: 1", "set url, or list workers"),
        ("url: 'http://sglang:30000', record: {samplingMask: true}", "topK from 1 to 4096"),
    ],
)
def test_an_engine_that_can_not_be_called_so_is_refused(engine: str, expected: str) -> None:
    text = GOOD.replace("scripted: {}", f"sglang: {{{engine}}}")
    (problem,) = problems(text)
    assert expected in problem
    if "topK" in expected:
        parsed(text + "  sampling: {topK: 64}\n")


def test_relative_paths_of_a_job_file_start_at_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    (tmp_path / "job.yaml").write_text(
        f"{GOOD}  store: {{keepJournals: true}}\n"
        "  sandbox: {local: {images: my images, checkout: {workdir: src, python: venv/python}}}\n"
    )
    monkeypatch.chdir("/")
    (tmp_path / "rows 1.jsonl").touch()
    rows = ["spec.dataset={swebench: {uri: 'file://rows%201.jsonl'}, quarantine: none.jsonl}"]

    spec = load_job(tmp_path / "job.yaml", ["spec.policy.tokenizer=models/tiny", *rows]).spec
    hub = load_job(tmp_path / "job.yaml", ["spec.policy.tokenizer=org/tiny"]).spec
    elsewhere = load_job(tmp_path / "job.yaml", [Setting("--store", STORE, "s3://a/ü b/")]).spec

    assert spec.store.uri == f"file://{tmp_path}/runs"
    assert spec.dataset.swebench is not None
    assert spec.dataset.swebench.uri == f"{tmp_path}/rows 1.jsonl"
    assert spec.dataset.quarantine == "none.jsonl"
    local = spec.sandbox.local
    assert local is not None
    assert local.checkout is not None
    assert local.images == f"{tmp_path}/my images"
    assert local.checkout.workdir == f"{tmp_path}/src"
    assert local.checkout.python == f"{tmp_path}/venv/python"
    assert spec.policy.tokenizer == f"{tmp_path}/models/tiny"
    assert hub.policy.tokenizer == "org/tiny"
    assert elsewhere.store.uri == "s3://a/ü b"


@pytest.mark.parametrize(
    "written",
    [
        *(" a", "a\tb", "b" * 2000),
        *("file:/ü b", "file:///", "s3:b", "S3://b", "gs:/b/", "ftp://b"),
    ],
)
def test_a_hint_is_never_the_text_that_was_refused(tmp_path: Path, written: str) -> None:
    (tmp_path / "job.yaml").write_text(GOOD)

    with pytest.raises(SpecError) as caught:
        load_job(tmp_path / "job.yaml", [Setting("--store", STORE, written)])

    (problem,) = caught.value.problems
    assert problem.place == "--store"
    if hint := re.search("; write (.*)", problem.message):
        load_job(tmp_path / "job.yaml", [Setting("--store", STORE, hint[1])])


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("spec.limits.turn", "spec.limits.turns"),
        ("limit.turns", "spec.limits.turns"),
        ("Spec.Sampling.temp", "spec.sampling.temperature"),
        ("spec.dataset.url", "spec.dataset.swebench.uri"),
        ("metadata.nme", "metadata.name"),
        ("max-turns", "spec.limits.turns"),
        ("paralelism", "spec.parallelism"),
    ],
)
def test_a_mistyped_field_is_looked_for_where_it_was_written(path: str, meant: str) -> None:
    assert fields_meant(path)[0].dotted == meant


@pytest.mark.parametrize("path", ["", "...", "spec.", "frobnicate", "a." * 8000, "samples" * 8000])
def test_a_text_that_is_no_field_has_no_suggestion(path: str) -> None:
    assert fields_meant(path) == ()


def test_of_a_file_that_never_ends_only_the_beginning_is_read() -> None:
    with pytest.raises(SpecError) as refused:
        load_job(Path("/dev/zero"))
    assert "longer than 256 KiB" in str(refused.value)
