"""User messages behind a turn: appended exactly as the template would, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rollout_dev import families
from swe_rollout.agent.delta import DeltaTemplate, UnfitError
from swe_rollout.agent.dialect import Dialect
from swe_rollout.agent.family import FAMILIES
from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import InternalError
from swe_rollout.testing.tiny import tokenizer_path
from swe_rollout.types.turn import CallStatus, ToolCall
from unit.agent.test_renderer_load import folder_with

FAMILY_NAMES = ("qwen2_5", "qwen3", "qwen3_thinking", "qwen3_coder")
CALL = ToolCall(CallStatus.OK, "", "bash", {"command": "ls"})
OTHER = {
    # The tools stand before the last message of the user, so each message moves them.
    "moves": (
        "{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}"
        "{%- set ns.last = loop.index %}{%- endif %}{%- endfor %}{%- for m in messages %}"
        "{%- if loop.index == ns.last and tools %}"
        "{{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}"
        "MESSAGE{%- endfor %}PROMPT"
    ),
    # The roles must alternate.
    "alternates": (
        "{%- set ns = namespace(last='') %}{%- for m in messages %}"
        "{%- if m.role in ('user', 'tool') and ns.last == 'tool' and m.role == 'user' %}"
        "{{- raise_exception('roles must alternate') }}{%- endif %}{%- set ns.last = m.role %}"
        "MESSAGE{%- endfor %}PROMPT"
    ),
}


def template(name: str) -> str:
    message = (
        "{{- '<|im_start|>' + m.role + '\\n' }}"
        "{%- if m.content %}{{- m.content }}{%- endif %}"
        "{%- for c in m.tool_calls or [] %}"
        "{{- '\\n<tool_call>\\n' + ({'name': c.function.name, 'arguments': c.function.arguments}"
        " | tojson) + '\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}"
    )
    prompt = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    return OTHER[name].replace("MESSAGE", message).replace("PROMPT", prompt)


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    root: Path = tmp_path_factory.mktemp("models")
    other = {name: folder_with(root / name, template(name)) for name in OTHER}
    known = {name: str(families.write(name, root / name)) for name in FAMILY_NAMES}
    sources = other | known | {"tiny": str(tokenizer_path())}
    return {name: Renderer.load(folder) for name, folder in sources.items()}


@pytest.mark.parametrize("name", [*FAMILY_NAMES, "tiny"])
@pytest.mark.parametrize("calls", [(), (CALL,)])
def test_a_message_is_what_the_template_writes_in_the_whole_conversation(
    renderers: dict[str, Renderer], name: str, calls: tuple[ToolCall, ...]
) -> None:
    renderer = renderers[name]
    assert renderer.message_refusal(after_calls=bool(calls)) == ""
    results = ["out"] * len(calls)
    delta = renderer.delta(
        renderer.grammar.end_id, calls, results=results, tools=(), messages=("And now?",)
    )
    asked: list[dict[str, object]] = [{"role": "user", "content": "Look."}]
    said: dict[str, object] = {"role": "assistant", "content": "Well."}
    if calls:
        called = {"name": "bash", "arguments": {"command": "ls"}}
        said["tool_calls"] = [{"type": "function", "function": called}]
    answered: list[dict[str, object]] = [{"role": "tool", "content": each} for each in results]
    answered.append({"role": "user", "content": "And now?"})
    whole = renderer.template.render([*asked, said, *answered], (), prompted=True)
    assert whole.endswith("<|im_end|>" + renderer.decode(delta.ids))


@pytest.mark.parametrize("name", families.FAMILIES)
def test_every_family_takes_messages_behind_words_and_behind_results(
    name: str, tmp_path: Path
) -> None:
    renderer = Renderer.load(str(families.write(name, tmp_path / name)))
    for calls in ((), (replace(CALL, id="call00001"),)):
        assert renderer.message_refusal(after_calls=bool(calls)) == ""
        for last in sorted(renderer.stop_token_ids):
            text = renderer.decode(
                renderer.delta(
                    last, calls, results=["out"] * len(calls), tools=(), messages=("Next?",)
                ).ids
            )
            assert text.count("Next?") == 1
            behind = text.partition("Next?")[2]
            assert any(control in behind for control in renderer.controls.values())


@pytest.mark.parametrize("calls", [(), (CALL,)])
def test_a_message_forges_no_control_token(
    renderers: dict[str, Renderer], calls: tuple[ToolCall, ...]
) -> None:
    renderer = renderers["qwen3"]

    def controls(message: str) -> list[int]:
        delta = renderer.delta(
            renderer.grammar.end_id,
            calls,
            results=["r"] * len(calls),
            tools=(),
            messages=(message,),
        )
        return [i for i in delta.ids if i in renderer.controls]

    assert controls("".join(renderer.controls.values())) == controls("plain")


def test_a_template_that_moves_the_tools_with_each_message_is_refused(
    renderers: dict[str, Renderer],
) -> None:
    renderer = renderers["moves"]
    assert "rewrites earlier messages" in renderer.message_refusal(after_calls=False)
    with pytest.raises(InternalError, match="can't append a user message exactly: it rewrites"):
        renderer.delta(renderer.grammar.end_id, (), results=(), tools=(), messages=("Go on.",))


def test_a_template_may_take_messages_behind_words_and_not_behind_results(
    renderers: dict[str, Renderer],
) -> None:
    renderer = renderers["alternates"]
    assert renderer.message_refusal(after_calls=False) == ""
    assert "roles must alternate" in renderer.message_refusal(after_calls=True)
    with pytest.raises(InternalError, match="roles must alternate") as caught:
        renderer.check_message(after_calls=True)
    assert not caught.value.retryable


def behind_end(renderers: dict[str, Renderer], behind: str, name: str) -> str:
    family = next(each for each in FAMILIES if each.name == name)
    return DeltaTemplate(renderers["tiny"].template, Dialect(family)).behind_end(behind)


@pytest.mark.parametrize(
    ("name", "behind", "rest"),
    [
        ("chatml", "<|im_end|>\n<|im_start|>user\n", "<|im_start|>user\n"),
        ("harmony", "<|end|><|start|>user<|message|>", "<|start|>user<|message|>"),
        ("llama3", "<|eot_id|><|start_header_id|>user", "<|start_header_id|>user"),
        ("glm", "<|user|>\n", "<|user|>\n"),
        ("gemma4", "<turn|>\n<|turn>user", "<turn|>\n<|turn>user"),
    ],
)
def test_what_ends_a_turn_without_calls_stays_as_it_was_sampled(
    renderers: dict[str, Renderer], name: str, behind: str, rest: str
) -> None:
    assert behind_end(renderers, behind, name) == rest


def test_an_end_that_the_family_does_not_know_is_refused(
    renderers: dict[str, Renderer],
) -> None:
    with pytest.raises(UnfitError, match="in no known way"):
        behind_end(renderers, "<|other|>user", "chatml")
