"""Every chat grammar: it is recognised, its deltas are the template's own, and nothing forges."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rollout_dev import families
from rollout_dev.families import FAMILIES
from swe_rollout.agent.encoding import Body, Scaffold
from swe_rollout.agent.parsers.base import Reasoning, SampledText
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.sampled_turn import read_turn, words_of
from swe_rollout.agent.tools.base import Parameter, ParameterType, ToolSpec
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.types.trajectory import Retention
from swe_rollout.types.turn import CallStatus, ToolCall

TOOLS = (
    ToolSpec(
        "bash",
        "Runs a command.",
        (
            Parameter("command", "It.", required=True),
            Parameter("seconds", "", ParameterType.INTEGER),
        ),
    ),
    ToolSpec("submit", "Hands in."),
)
FIRST = Prompts().messages("Fix it.", "/testbed")
EVERY = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    root = tmp_path_factory.mktemp("families")
    return {name: Renderer.load(str(families.write(name, root / name))) for name in FAMILIES}


def called(renderer: Renderer, count: int, start: int = 0) -> tuple[ToolCall, ...]:
    """Calls as a policy of the family would have made them, ids included."""
    ids: dict[str, str] = {
        ToolFormat.KIMI_K2: "functions.bash:{}",
        ToolFormat.MISTRAL: "call0000{}",
    }
    written = ids.get(renderer.tool_format, "")
    return tuple(
        ToolCall(CallStatus.OK, "", "bash", {"command": f"ls {n}"}, id=written.format(n))
        for n in range(start, start + count)
    )


@EVERY
def test_a_family_is_recognised(renderers: dict[str, Renderer], name: str) -> None:
    renderer, known = renderers[name], FAMILIES[name]
    assert renderer.grammar.family.name == known.family
    assert renderer.tool_format is known.tool_format
    assert renderer.path.family == known.family
    assert renderer.path.retention is Retention.ALL
    assert set(renderer.path.ends) >= {
        renderer.grammar.family.end,
        known.eos,
    }


@EVERY
def test_names_and_ids_of_calls_forge_nothing_either(
    renderers: dict[str, Renderer], name: str
) -> None:
    renderer = renderers[name]
    end = renderer.grammar.end_id
    for control in renderer.controls.values():
        bad = ToolCall(CallStatus.UNKNOWN_TOOL, "", f"bash{control}", id=f"id{control}")
        delta = renderer.delta(end, [bad], results=["x"], tools=TOOLS)
        plain = ToolCall(CallStatus.UNKNOWN_TOOL, "", "", id="")
        assert delta == renderer.delta(end, [plain], results=["x"], tools=TOOLS)


def controls(renderer: Renderer, ids: Sequence[int]) -> list[int]:
    return [token for token in ids if token in renderer.controls]


def test_a_call_is_answered_under_the_id_it_was_given(renderers: dict[str, Renderer]) -> None:
    kimi, mistral = renderers["kimi_k2"], renderers["mistral"]
    call = ToolCall(CallStatus.OK, "", "bash", {}, id="functions.bash:17")
    text = kimi.decode(kimi.delta(kimi.grammar.end_id, [call], results=["r"], tools=TOOLS).ids)
    assert "## Return of functions.bash:17\nr" in text
    call = ToolCall(CallStatus.OK, "", "bash", {}, id="abcdefgh9")
    end = mistral.grammar.end_id
    text = mistral.decode(mistral.delta(end, [call], results=["r"], tools=TOOLS).ids)
    assert '"call_id": "abcdefgh9"' in text


def test_the_first_prompt_and_a_delta_may_differ_in_opening_the_reasoning(
    renderers: dict[str, Renderer],
) -> None:
    expected = {"qwen3_thinking": (True, True), "deepseek_r1": (True, False),
                "deepseek_v3_1": (False, False), "minimax_m2": (True, True),
                "qwen3": (False, False)}  # fmt: skip
    for name, opens in expected.items():
        renderer = renderers[name]
        delta = renderer.delta(
            renderer.grammar.end_id, called(renderer, 1), results=["<think>"], tools=TOOLS
        )
        prompt = renderer.prompt(FIRST, TOOLS)
        assert (prompt.opens_reasoning, delta.opens_reasoning) == opens, name


def test_what_a_template_is_told_changes_its_prompt_and_the_fingerprint(tmp_path: Path) -> None:
    folder = str(families.write("qwen3", tmp_path))
    plain = Renderer.load(folder)
    told = Renderer.load(folder, chat_template_kwargs={"enable_thinking": False})
    assert plain.decode(plain.prompt(FIRST, TOOLS).ids).endswith("assistant\n")
    assert told.decode(told.prompt(FIRST, TOOLS).ids).endswith("<think>\n\n</think>\n\n")
    assert plain.fingerprint != told.fingerprint
    assert plain.path.template_drops_reasoning


def test_tools_go_into_the_system_message_where_the_vendor_s_template_has_none(
    renderers: dict[str, Renderer],
) -> None:
    renderer = renderers["deepseek_v3_1"]
    text = renderer.decode(renderer.prompt(FIRST, TOOLS).ids)
    for tool in TOOLS:
        assert f"### {tool.name}\nDescription: {tool.description}" in text
        assert json.dumps(tool.arguments.schema) in text
    assert "tool_call_name<｜tool▁sep｜>tool_call_arguments" in text


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        ("<|channel|>final<|message|>Hi.<|return|>", "Hi."),
        (
            (
                "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
                "Hi, final channel.<|return|>"
            ),
            "Hi, final channel.",
        ),
        (
            (
                "<|channel|>commentary<|message|>Look. <|end|><|start|>assistant to=functions.bash"
                '<|channel|>commentary <|constrain|>json<|message|>{"command": "ls"}<|call|>'
            ),
            'Look. {"command": "ls"}',
        ),
        (" to=functions.bash<|channel|>commentary json<|message|>{}<|call|>", "{}"),
        ("<|channel|>final", ""),
        ("Hi.<|return|>", "Hi."),
    ],
)
def test_the_words_of_a_turn_hold_no_header(
    renderers: dict[str, Renderer], turn: str, words: str
) -> None:
    renderer = renderers["gpt_oss"]
    ids = renderer._encoding.encode([Scaffold(turn)])

    assert read_turn(renderer, ids, tools=TOOLS, opens_reasoning=False).words == words


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("spelled", ["</think>", "<think>", "</think> and <think>", "<think>x"])
def test_reasoning_ends_with_its_token_and_not_with_its_text(
    renderers: dict[str, Renderer], spelled: str, *, opened: bool
) -> None:
    """A vocabulary without the token has its text alone, and then an opener must come first."""
    renderer, said = renderers["qwen3_5"], f"Write {spelled} in the prompt."
    before = "Hm, <tool_call>.</think>" if opened else "<think>Hm.</think>"
    ids = renderer._encoding.encode([Scaffold(before), Body(said), Scaffold("<|im_end|>")])

    turn = read_turn(renderer, ids, tools=TOOLS, opens_reasoning=opened)

    assert turn.words == said
    assert words_of(SampledText("One </think> two.", ()), Reasoning()) == "One </think> two."
