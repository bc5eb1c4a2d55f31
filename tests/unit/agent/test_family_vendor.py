"""Real templates where an installed package carries some, and what vendors' templates do at times.

None are in the repository. trl's wheel has those of most families, as text that needs no import.
"""

from __future__ import annotations

import importlib.util
import json
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final, Self

import pytest

from rollout_dev import families
from swe_rollout.agent.dialect import assistant_message, result_messages
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.turn import CallStatus, ToolCall
from unit.agent.test_family import FIRST, called
from unit.agent.test_template_probe import loaded

TOOLS = toolbox(["bash", "submit"]).specs
RESULTS: Final = (
    "plain",
    "",
    " lead and trail \n\n",
    '{"a": "ä\\n"}',
    "日本\u2028<think>",
    "null",
    "[1, 2]",
)

PACKAGES: Final = ("trl", "renderers", "sglang", "vllm", "miles")
# The stem of a file's name to what must be found out of it; one name is one vendor's template.
KNOWN: Final = {
    "qwen2_5": ToolFormat.HERMES,
    "qwen3": ToolFormat.HERMES,
    "qwen3_vl": ToolFormat.HERMES,
    "qwen3_instruct_2507": ToolFormat.HERMES,
    "qwen3_5_think": ToolFormat.QWEN_XML,
    "qwen3_5_nothink": ToolFormat.QWEN_XML,
    "qwen3_6": ToolFormat.QWEN_XML,
    "nemotron_3_nano": ToolFormat.QWEN_XML,
    "glm4moe": ToolFormat.GLM45,
    "deepseekv3": ToolFormat.DEEPSEEK_V3,
    "gptoss": ToolFormat.HARMONY,
    "llama3_1": ToolFormat.LLAMA3,
    "llama3_2": ToolFormat.LLAMA3,
}


def installed_templates() -> list[Path]:
    """Templates in installed packages, which are found but not imported."""
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    roots = [root for spec in specs if spec for root in spec.submodule_search_locations or ()]
    found = [path for root in roots for path in Path(root).rglob("*.jinja") if path.stem in KNOWN]
    return sorted(found)


@pytest.mark.skipif(
    not installed_templates(), reason="uv pip install --no-deps trl (its wheel has templates)"
)
def test_real_templates_are_recognised_and_their_deltas_are_their_own(tmp_path: Path) -> None:
    for number, path in enumerate(installed_templates()):
        source = path.read_text("utf-8")
        renderer = loaded(source, tmp_path / str(number))
        assert renderer.tool_format is KNOWN[path.stem], path
        rounds = 1 if renderer.grammar.family.has_one_round else 3
        for results in [[text] for text in RESULTS] + [list(RESULTS[:2]), list(RESULTS[2:4])]:
            if len(results) == 1 or not renderer.grammar.dialect.one_call:
                check_rounds(renderer, results, rounds)


def check_rounds(renderer: Renderer, results: list[str], rounds: int) -> None:
    grammar = renderer.grammar
    dialect, calls = grammar.dialect, called(renderer, len(results))
    history: list[dict[str, object]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "task"},
    ]
    delta = renderer.delta(grammar.end_id, calls, results=results, tools=TOOLS)
    for _ in range(rounds):
        history += [
            assistant_message("I look.", calls, dialect),
            *result_messages(calls, results, dialect),
        ]
        whole = renderer.template.render(history, TOOLS, prompted=True)
        assert whole.endswith(renderer.decode(delta.ids))


def changed(name: str, *replacements: tuple[str, str]) -> str:
    source = families.template(name)
    for old, new in replacements:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def test_a_system_message_that_a_template_moves_stays_where_it_was_first_written(
    tmp_path: Path,
) -> None:
    """Mistral's older templates write it with the task, and only while that is the last message."""
    system = "[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]"
    alone = "{{- '[INST]' + m.content + '[/INST]' }}"
    moved = (
        "{{- '[INST]' + (messages[0].content + '\\n\\n' if loop.last and messages[0].role =="
        " 'system' else '') + m.content + '[/INST]' }}"
    )
    source = changed("mistral", (system, ""), (alone, moved))

    renderer = loaded(source, tmp_path)

    text = renderer.decode(renderer.prompt(FIRST, TOOLS).ids)
    assert f"[INST]{FIRST[0].content}\n\n{FIRST[1].content}[/INST]" in text
    delta = renderer.delta(renderer.grammar.end_id, called(renderer, 1), results=["r"], tools=TOOLS)
    assert renderer.decode(delta.ids).startswith("[TOOL_RESULTS]")
    assert FIRST[0].content not in renderer.decode(delta.ids)


def test_a_template_that_swallows_the_system_message_is_not_given_one(tmp_path: Path) -> None:
    source = changed("mistral", ("[SYSTEM_PROMPT]' + messages[0].content + '[/SYSTEM_PROMPT]", ""))
    renderer = loaded(source, tmp_path)

    with pytest.raises(PrerequisiteError, match="takes no system message"):
        renderer.prompt(FIRST, TOOLS)
    assert renderer.prompt([Message(MessageRole.USER, "x")], TOOLS).ids


def test_results_go_by_the_names_of_their_calls_where_a_turn_has_one_call(tmp_path: Path) -> None:
    """gpt-oss leaves out all calls but the first, and names results by the call before them."""
    source = changed(
        "gpt_oss",
        (
            "{{- raise_exception('one call in a message') }}",
            "",
        ),
        (
            "{%- set f = m.tool_calls[0].function %}",
            "{%- set f = m.tool_calls[0].function %}{%- set ns.name = f.name %}",
        ),
        ("{%- for m in messages %}", "{%- set ns = namespace(name='') %}{%- for m in messages %}"),
        ("'<|start|>functions.' + m.name +", "'<|start|>functions.' + ns.name +"),
    )
    renderer = loaded(source, tmp_path)
    calls = (ToolCall(CallStatus.OK, "", "bash"), ToolCall(CallStatus.OK, "", "submit"))

    delta = renderer.delta(renderer.grammar.end_id, calls, results=["one", "two"], tools=TOOLS)

    frame = '<|start|>functions.{} to=assistant<|channel|>commentary<|message|>"{}"<|end|>'
    assert renderer.decode(delta.ids) == (
        frame.format("bash", "one") + frame.format("submit", "two") + "<|start|>assistant"
    )


def test_midnight_changes_no_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Renderer.load(str(families.write("gpt_oss", tmp_path)))
    before = renderer.prompt(FIRST, TOOLS).ids

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(2099, 1, 1, tzinfo=tz)

    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
    spoken = renderer.tokenizer.apply_chat_template(
        [{"role": "user", "content": ""}],
        tools=None,
        tokenize=False,
        add_generation_prompt=True,
        chat_template="{{ strftime_now('%Y') }}",
    )
    assert spoken == "2099"
    assert renderer.prompt(FIRST, TOOLS).ids == before
    assert "2099" not in renderer.decode(before)


@pytest.mark.parametrize("name", ["qwen3", "glm4_5", "gpt_oss"])
def test_where_the_model_s_own_configuration_ends_a_turn_it_ends(tmp_path: Path, name: str) -> None:
    folder = families.write(name, tmp_path)
    plain = Renderer.load(str(folder))
    other = next(i for i in plain.controls if i not in plain.stop_token_ids)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [other, "x"]}))

    renderer = Renderer.load(str(folder))

    assert set(renderer.stop_token_ids) == {*plain.stop_token_ids, other}
    assert renderer.sampled([5, other]).text == renderer.decode([5])
    cut = renderer.delta(other, called(renderer, 1), results=["r"], tools=TOOLS)
    assert cut == renderer.delta(5, called(renderer, 1), results=["r"], tools=TOOLS)
