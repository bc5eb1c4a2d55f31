"""Templates of no family in the table: their ends, formats and places of calls are found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from swe_rollout.spec.tool_format import ToolFormat
from unit.agent.test_template_probe import CALL, OBJECT, loaded

pytestmark = pytest.mark.threat(point=15)

LIST = (
    f"{{% for c in m.tool_calls %}}{{{{ {OBJECT} }}}}{{{{ ', ' if not loop.last }}}}{{% endfor %}}"
)
EACH = "{{% for c in m.tool_calls %}}{}{{% endfor %}}"
CALLS = {
    ToolFormat.HUNYUAN: f"<tool_calls>[{LIST}]</tool_calls>",
    ToolFormat.NEMOTRON: f"<TOOLCALL>[{LIST}]</TOOLCALL>",
    ToolFormat.GRANITE: f"<|tool_call|>[{LIST}]",
    ToolFormat.GIGACHAT: EACH.format(f"<|function_call|>{{{{ {OBJECT} }}}}"),
    ToolFormat.FUNCTIONARY: EACH.format(
        "<function={{ c.function.name }}>{{ c.function.arguments | tojson }}</function>"
    ),
    ToolFormat.SEED: EACH.format(
        "<seed:tool_call><function={{ c.function.name }}>"
        "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>"
        "{% endfor %}</function></seed:tool_call>"
    ),
}
TEMPLATE = (
    "{% for t in tools or [] %}<|start|>tool {{ t | tojson }}<|stop|>{% endfor %}"
    "{% for m in messages %}<|start|>{{ m.role }}: {{ m.content }}"
    "{% if m.tool_calls %}CALLS{% endif %}<|stop|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant: {% endif %}"
)


@pytest.mark.parametrize("form", CALLS)
def test_the_end_of_a_turn_and_the_format_of_calls_are_found(
    form: ToolFormat, tmp_path: Path
) -> None:
    renderer = loaded(TEMPLATE.replace("CALLS", CALLS[form]), tmp_path)

    assert renderer.tool_format == form
    assert renderer.grammar.family.end == "<|stop|>"
    delta = renderer.delta(renderer.grammar.end_id, [CALL], results=["r"], tools=())
    assert renderer.decode(delta.ids) == "<|start|>tool: r<|stop|><|start|>assistant: "


def test_calls_stand_in_the_words_where_the_template_writes_none(tmp_path: Path) -> None:
    source = TEMPLATE.replace("CALLS", "").replace("<|start|>tool ", "<|start|>Use <tool_call>: ")
    dialect = loaded(source, tmp_path).grammar.dialect
    assert (dialect.calls_in_words, dialect.results_as_user) == (ToolFormat.HERMES, False)


def test_results_are_the_user_s_where_there_is_no_role_for_them(tmp_path: Path) -> None:
    source = TEMPLATE.replace("CALLS", "").replace("tools or []", "[]")
    source = source.replace("in messages", "in messages if m.role != 'tool'")
    renderer = loaded(source, tmp_path)
    delta = renderer.delta(renderer.grammar.end_id, [CALL], results=["r"], tools=())
    assert renderer.decode(delta.ids).startswith("<|start|>user: <tool_response>\nr\n</tool_")


@pytest.mark.parametrize("names", [("[|{}|]", "[|endofturn|]"), ("<|{}|>", "<|end|>")])
def test_roles_may_be_tokens_of_their_own(names: tuple[str, str], tmp_path: Path) -> None:
    role, end = names
    source = (
        "{% for m in messages %}ROLE{{ m.content }}END\n{% endfor %}"
        "{% if add_generation_prompt %}" + role.format("assistant") + "{% endif %}"
    ).replace("ROLE", role.format("' + m.role + '").join(("{{ '", "' }}")))
    renderer = loaded(source.replace("END", end), tmp_path)

    assert (renderer.grammar.family.end, renderer.grammar.family.after) == (end, "\n")
    delta = renderer.delta(renderer.grammar.end_id, [CALL], results=["r"], tools=())
    assert (
        renderer.decode(delta.ids) == f"\n{role.format('tool')}r{end}\n{role.format('assistant')}"
    )
    assert any(role.format("user") == token for token in renderer.controls.values())


def test_white_space_behind_the_whole_is_not_behind_each_turn(tmp_path: Path) -> None:
    source = TEMPLATE.replace("CALLS", CALLS[ToolFormat.HUNYUAN]) + "{{ '\\n' }}"
    assert not loaded(source, tmp_path).grammar.family.after
