"""The scripted engine: which turn it plays, its text, and where it stops."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from swe_rollout.agent.parsers import parser_for
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.tools import toolbox
from swe_rollout.engine.base import GenerateRequest, TokenEngine
from swe_rollout.engine.errors import BadRequestError, ContextOverflowError
from swe_rollout.engine.scripted.engine import ScriptedEngine
from swe_rollout.engine.scripted.scenarios import CHUNK_BYTES, SCENARIOS, scenario
from swe_rollout.engine.scripted.turns import CallTurn, Shell
from swe_rollout.errors import PrerequisiteError, TaskError, UsageError
from swe_rollout.spec.policy import ScriptedPolicy
from swe_rollout.spec.tool_format import TextFormat, ToolFormat
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.episode import EpisodeId, StopReason
from swe_rollout.types.instance import Instance
from swe_rollout.types.turn import CallStatus, FinishReason, WeightSpan
from unit.engine import engine_parts

TOKENIZER = Tokenizer.from_file(str(tokenizer_path() / "tokenizer.json"))
(END,) = TOKENIZER.encode("<|im_end|>").ids
PATCH = """\
diff --git a/NEWS.md b/NEWS.md
--- a/NEWS.md
+++ b/NEWS.md
@@ -1 +1,2 @@
 # News
+- three is three
diff --git a/src/three.py b/src/three.py
--- a/src/three.py
+++ b/src/three.py
@@ -1,2 +1,2 @@
 def three():
-    return 4
+    return 3
"""
INSTANCE = Instance(
    instance_id="task", repo="owner/repo", problem_statement="three is four", image="image"
)
TASK = replace(INSTANCE, gold_patch=PATCH)
WRITTEN = (ToolFormat.HERMES, ToolFormat.QWEN_XML)
"""The formats that scripted policies write."""


def engine(
    *scenarios: str, instance: Instance = TASK, context_tokens: int | None = None
) -> ScriptedEngine:
    return ScriptedEngine(
        ScriptedPolicy.model_validate({"scenarios": scenarios}),
        [instance],
        tokenizer_path(),
        tool_format=ToolFormat.HERMES,
        context_tokens=context_tokens,
    )


def conversation(turns: int) -> list[int]:
    """The ids of a conversation in which `turns` turns are over and the next one is open."""
    over = "<|im_start|>assistant\nx<|im_end|>\n<|im_start|>user\ny<|im_end|>\n" * turns
    text = f"<|im_start|>user\nfix it<|im_end|>\n{over}<|im_start|>assistant\n"
    ids: list[int] = TOKENIZER.encode(text).ids
    return ids


def request(ids: list[int], *, sample: int = 0, max_new_tokens: int = 9999) -> GenerateRequest:
    return engine_parts.request(*ids, sample=sample, max_new_tokens=max_new_tokens)


def decoded(ids: tuple[int, ...]) -> str:
    text: str = TOKENIZER.decode(list(ids), skip_special_tokens=False)
    return text


async def said(name: str, turn: int) -> str:
    return decoded((await engine(name).generate(request(conversation(turn)))).token_ids)


async def test_it_is_a_token_engine_that_reports_its_vocabulary() -> None:
    played = engine("gold", context_tokens=512)
    assert isinstance(played, TokenEngine)
    info = await played.info()
    assert (info.vocab_size, info.context_tokens) == (TOKENIZER.get_vocab_size(), 512)


async def test_a_turn_ends_with_the_end_token_and_has_a_logprob_for_each_id() -> None:
    ids = conversation(0)
    generation = await engine("loop").generate(request(ids))
    count = len(generation.token_ids)
    assert generation.token_ids[-1] == END
    assert generation.token_ids.count(END) == 1
    assert generation.finish_reason is FinishReason.STOP
    assert generation.logprobs == (0.0,) * count
    assert generation.prompt_tokens == len(ids)
    assert generation.weight_versions == (WeightSpan("scripted", 0, count),)


async def test_the_turn_is_counted_in_the_input_ids() -> None:
    texts = [await said("gold", turn) for turn in range(5)]
    assert "git log" in texts[0]
    assert '"path": "src/three.py"' in texts[1]
    assert "END_OF_PATCH" in texts[2]
    assert "git apply" in texts[3]
    assert '"name": "submit"' in texts[4]


async def test_an_opening_spelt_in_plain_text_is_no_turn() -> None:
    spelt: list[int] = TOKENIZER.encode("<|im").ids + TOKENIZER.encode("_start|>assistant\n").ids
    forged = [*spelt, *conversation(0)]
    generation = await engine("gold").generate(request(forged))
    assert "git log" in decoded(generation.token_ids)


async def test_sample_k_plays_scenario_k_modulo_their_number() -> None:
    played = engine("gold", "loop")
    names = [played.scenario_of(EpisodeId("job", "task", k)).name for k in range(4)]
    assert names == ["gold", "loop", "gold", "loop"]
    generation = await played.generate(request(conversation(0), sample=3))
    assert "git status" in decoded(generation.token_ids)


async def test_a_turn_is_cut_at_max_new_tokens() -> None:
    whole = await engine("gold").generate(request(conversation(0)))
    cut = await engine("gold").generate(request(conversation(0), max_new_tokens=5))
    assert cut.token_ids == whole.token_ids[:5]
    assert cut.finish_reason is FinishReason.LENGTH


async def test_an_open_turn_is_continued_where_it_was_left() -> None:
    ids = conversation(0)
    whole = await engine("gold").generate(request(ids))
    rest = await engine("gold").generate(request([*ids, *whole.token_ids[:5]]))
    assert rest.token_ids == whole.token_ids[5:]


async def test_a_full_context_is_rejected_and_a_nearly_full_one_cuts() -> None:
    ids = conversation(0)
    with pytest.raises(ContextOverflowError):
        await engine("gold", context_tokens=len(ids)).generate(request(ids))
    generation = await engine("gold", context_tokens=len(ids) + 3).generate(request(ids))
    assert len(generation.token_ids) == 3


@pytest.mark.parametrize("ids", [[-1], [TOKENIZER.get_vocab_size()], [1, 2, 3]])
async def test_ids_that_open_no_turn_are_rejected(ids: list[int]) -> None:
    with pytest.raises(BadRequestError):
        await engine("gold").generate(request(ids))


async def test_an_unknown_instance_is_rejected() -> None:
    other = replace(request(conversation(0)), episode=EpisodeId("job", "other", 0))
    with pytest.raises(BadRequestError, match="other"):
        await engine("gold").generate(other)


async def test_an_instance_without_a_gold_patch_has_no_fix_to_play() -> None:
    played = engine("gold", instance=INSTANCE)
    with pytest.raises(TaskError, match="no gold patch"):
        await played.generate(request(conversation(0)))


def test_an_unknown_scenario_is_rejected_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no scenario 'silver'") as caught:
        scenario("silver")
    assert "gold, wrong" in caught.value.fix


def test_a_folder_without_a_tokenizer_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="no tokenizer"):
        ScriptedEngine(ScriptedPolicy(), [TASK], tmp_path, tool_format=ToolFormat.HERMES)


def test_a_tokenizer_without_chatml_is_rejected(tmp_path: Path) -> None:
    plain = json.loads((tokenizer_path() / "tokenizer.json").read_text())
    plain["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(plain))
    with pytest.raises(PrerequisiteError, match="no control token"):
        ScriptedEngine(ScriptedPolicy(), [TASK], tmp_path, tool_format=ToolFormat.HERMES)


def test_every_scenario_names_its_expected_outcome() -> None:
    assert {name: played.resolved for name, played in SCENARIOS.items()} == {
        "gold": True,
        "wrong": False,
        "empty": False,
        "malformed": True,
        "garbage": False,
        "loop": False,
    }
    assert scenario("garbage").stop_reason is StopReason.FORMAT_ERRORS
    assert scenario("loop").stop_reason is StopReason.TURN_LIMIT


@pytest.mark.parametrize("form", [form for form in ToolFormat if form not in WRITTEN])
def test_formats_that_no_scenario_writes_are_rejected_with_the_supported_ones(
    form: ToolFormat,
) -> None:
    with pytest.raises(PrerequisiteError, match="don't write calls in the format") as raised:
        SCENARIOS["gold"].turn(0, TASK, form)
    assert "hermes or qwen_xml" in raised.value.fix


@pytest.mark.parametrize("form", WRITTEN)
def test_garbage_and_the_first_malformed_turn_have_no_call_that_parses(form: ToolFormat) -> None:
    texts = [SCENARIOS["garbage"].turn(k, TASK, form) for k in range(3)]
    texts.append(SCENARIOS["malformed"].turn(0, TASK, form))
    for text in texts:
        with pytest.raises(ValueError, match=r"JSON|delimiter|parameter"):
            call_in(text, form)


@pytest.mark.parametrize("form", WRITTEN)
def test_after_its_error_malformed_continues_as_gold(form: ToolFormat) -> None:
    malformed, gold = SCENARIOS["malformed"], SCENARIOS["gold"]
    assert [malformed.turn(k + 1, TASK, form) for k in range(5)] == [
        gold.turn(k, TASK, form) for k in range(5)
    ]


def call_in(text: str, form: ToolFormat) -> dict[str, str]:
    """The arguments of the call in a turn; raises ValueError where a strict reader would."""
    match = re.search(r"<tool_call>\n(.*)\n</tool_call>$", text, re.DOTALL)
    assert match is not None
    if form is ToolFormat.HERMES:
        arguments: dict[str, str] = json.loads(match[1])["arguments"]
        return arguments
    body = re.fullmatch(r"<function=\w+>\n(.*)</function>", match[1], re.DOTALL)
    assert body is not None
    rest = re.sub(r"<parameter=\w+>\n.*?\n</parameter>\n", "", body[1], flags=re.DOTALL)
    if rest:
        raise ValueError("an open parameter")
    return dict(re.findall(r"<parameter=(\w+)>\n(.*?)\n</parameter>\n", body[1], re.DOTALL))


HARD_LINES = [
    "+plain",
    "+tab\tand trailing space ",
    "+carriage return\r",
    "+</tool_call><|im_end|>\n+</parameter>",
    "+END_OF_PATCH",
    "END_OF_PATCH",
    "+'quotes' \"double\" `back` $HOME \\n",
    "+cafe\u0301 \u00a0 \u2028 日本",
    "+form\x0cfeed \x00",
    "+" + "long" * CHUNK_BYTES,
]


@pytest.mark.parametrize("form", WRITTEN)
def test_a_patch_arrives_in_the_sandbox_byte_for_byte(form: ToolFormat, tmp_path: Path) -> None:
    patch = "".join(f"{line}\n" for line in (*HARD_LINES, *HARD_LINES[::-1]))
    task = replace(TASK, gold_patch=patch)
    (tmp_path / ".git").mkdir()
    gold, turn, written = SCENARIOS["gold"], 1, 0
    while "I write down the fix" in (text := gold.turn(turn, task, form)):
        ids = TOKENIZER.encode(text).ids
        text = TOKENIZER.decode(ids, skip_special_tokens=False)
        assert len(ids) < 4096
        subprocess.run(["bash", "-c", call_in(text, form)["command"]], cwd=tmp_path, check=True)
        turn, written = turn + 1, written + 1
    assert written > 1
    assert (tmp_path / ".git" / "fix.patch").read_bytes() == patch.encode()


def test_a_patch_without_a_last_line_end_gets_one(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    task = replace(TASK, gold_patch=PATCH.rstrip("\n"))
    command = call_in(SCENARIOS["gold"].turn(2, task, ToolFormat.HERMES), ToolFormat.HERMES)
    subprocess.run(["bash", "-c", command["command"]], cwd=tmp_path, check=True)
    assert (tmp_path / ".git" / "fix.patch").read_text() == PATCH


def test_wrong_notes_something_where_the_fix_creates_files_only() -> None:
    created = replace(TASK, gold_patch="--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n")
    text = SCENARIOS["wrong"].turn(1, created, ToolFormat.HERMES)
    assert call_in(text, ToolFormat.HERMES)["command"].endswith(">> REVIEWED.txt")


@pytest.mark.parametrize("form", TextFormat)
def test_scenarios_write_formats_that_stand_in_the_words(form: TextFormat) -> None:
    """Their calls are read back; those of `garbage` are not."""
    tools = toolbox(["bash", "str_replace_editor", "submit"]).specs

    def statuses(name: str, index: int) -> list[CallStatus]:
        sampled = SampledText(SCENARIOS[name].turn(index, TASK, form), ())
        found = parser_for(form).parse(sampled, tools=tools, reasoning=Reasoning())
        return [call.status for call in found]

    assert [statuses("gold", turn) for turn in range(6)] == [[CallStatus.OK]] * 6
    assert statuses("garbage", 0) not in ([], [CallStatus.OK])


@pytest.mark.parametrize("ends", ["", "finish-work"])
def test_an_agent_with_one_shell_of_its_own_gets_the_same_work_as_commands(
    tmp_path: Path, ends: str
) -> None:
    shell = Shell("exec", "cmd", ends)
    gold = [SCENARIOS["gold"].turn(k, TASK, ToolFormat.HERMES, shell) for k in range(6)]
    assert all('"name": "exec"' in text for text in gold if "<tool" in text)
    commands = [call_in(text, ToolFormat.HERMES)["cmd"] for text in gold if "<tool" in text]
    assert (commands[-1] == ends) == bool(ends)
    assert not any("\n" in command for command in commands)
    file = tmp_path / "lib.py"
    file.write_text("one\n")
    insert = {"command": "insert", "path": str(file), "insert_line": 0, "new_str": "# it's"}
    edit = CallTurn("I edit.", "str_replace_editor", insert).through(shell)
    subprocess.run(["sh", "-c", str(edit.arguments["cmd"])], check=True)
    assert file.read_text() == "# it's\none\n"
