"""What templates may do and still be exact, and the true reason where they may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollout_dev.families import vocabulary
from swe_rollout.agent.prompts import Message, MessageRole
from swe_rollout.agent.renderer import Renderer
from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tokens.conformance import check_conformance
from swe_rollout.testing.tokens.patterns import TOOLS
from swe_rollout.types.turn import CallStatus, ToolCall

pytestmark = pytest.mark.threat(point=15)

OBJECT = "{'name': c.function.name, 'arguments': c.function.arguments} | tojson"
PARAMETERS = "{'name': c.function.name, 'parameters': c.function.arguments} | tojson"
HERMES = f"{{% for c in m.tool_calls %}}<tool_call>\n{{{{ {OBJECT} }}}}\n</tool_call>{{% endfor %}}"
TOLD = "{% for t in tools or [] %}<|start|>tool {{ t | tojson }}<|stop|>{% endfor %}"
TURNS = (
    "{% for m in messages %}<|start|>{{ m.role }}: {{ m.content or '' }}"
    "{% if m.tool_calls %}CALLS{% endif %}<|stop|>{% endfor %}"
)
BEGIN = "{% if add_generation_prompt %}<|start|>assistant: {% endif %}"
TEMPLATE = TOLD + TURNS.replace("CALLS", HERMES) + BEGIN
CALL = ToolCall(CallStatus.OK, "", "bash", {})


def loaded(source: str, folder: Path, **options: str) -> Renderer:
    return Renderer.load(str(vocabulary.write(source, folder)), tool_format=options.get("form"))


def exact(source: str, folder: Path) -> Renderer:
    """Load a template and hold it to every check."""
    renderer = loaded(source, folder)
    found = check_conformance(renderer, quick=True)
    assert found.passed, [check for check in found.checks if not check.passed]
    return renderer


def prompt(renderer: Renderer) -> str:
    first = [Message(MessageRole.SYSTEM, "Be brief."), Message(MessageRole.USER, "Fix it.")]
    return renderer.decode(renderer.prompt(first, TOOLS[:1]).ids)


def delta(renderer: Renderer, *results: str) -> str:
    calls = [CALL] * len(results)
    rendered = renderer.delta(renderer.grammar.end_id, calls, results=results, tools=TOOLS[:1])
    return renderer.decode(rendered.ids)


LAST_USER = "{% set last = messages | selectattr('role', 'equalto', 'user') | list | last %}"
MOVED = {
    "an instruction behind the last message": TEMPLATE.replace(
        BEGIN, "<|start|>system: Call a tool.<|stop|>" + BEGIN
    ),
    "the tools, with the task while it is the last message": (
        TURNS.replace("CALLS", HERMES).replace(
            "{{ m.content or '' }}",
            "{% if loop.last and m.role == 'user' %}{{ tools | tojson }}{% endif %}"
            "{{ m.content or '' }}",
        )
        + BEGIN
    ),
    "white space behind the prompt": TEMPLATE + "{{ '\\n' }}",
}


@pytest.mark.parametrize("case", MOVED)
def test_a_prompt_that_is_written_otherwise_later_stays_as_it_was_sent(
    case: str, tmp_path: Path
) -> None:
    renderer = exact(MOVED[case], tmp_path)

    assert renderer.grammar.dialect.moves_prompt
    assert renderer.grammar.is_rewritten


def test_an_instruction_behind_the_last_message_is_in_every_request(tmp_path: Path) -> None:
    renderer = loaded(MOVED["an instruction behind the last message"], tmp_path)

    asked = "<|start|>system: Call a tool.<|stop|><|start|>assistant: "
    assert prompt(renderer).endswith(f"<|start|>user: Fix it.<|stop|>{asked}")
    assert delta(renderer, "r") == f"<|start|>tool: r<|stop|>{asked}"


def test_a_template_that_keeps_its_prompt_is_not_taken_for_one_that_moves_it(
    tmp_path: Path,
) -> None:
    renderer = exact(TEMPLATE, tmp_path)
    assert not renderer.grammar.dialect.moves_prompt
    assert not renderer.grammar.is_rewritten


def test_parallel_calls_that_no_parser_tells_apart_are_one_call_in_a_turn(tmp_path: Path) -> None:
    each = f"{{% for c in m.tool_calls %}}{{{{ {PARAMETERS} }}}}{{% endfor %}}"
    source = TOLD + TURNS.replace("CALLS", each).replace("m.content or ''", "m.content or ''")
    renderer = exact(source + BEGIN, tmp_path)

    assert renderer.tool_format == ToolFormat.LLAMA3
    assert renderer.grammar.dialect.one_call


def test_a_system_message_is_refused_where_only_conversations_without_one_are_right(
    tmp_path: Path,
) -> None:
    # An off-by-one: with a system message, results that are not the last stay open.
    source = TOLD + (
        "{% set start = 1 if messages[0].role == 'system' else 0 %}"
        "{% for m in messages[start:] %}"
        "{% if m.role == 'tool' %}"
        "{% if messages[loop.index0 - 1].role != 'tool' %}<|start|>tool: {% endif %}"
        "[{{ m.content }}]"
        "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|stop|>{% endif %}"
        "{% else %}"
        "<|start|>{{ m.role }}: {{ messages[0].content if start and loop.first }}"
        "{{ m.content or '' }}{% if m.tool_calls %}" + HERMES + "{% endif %}<|stop|>"
        "{% endif %}{% endfor %}"
    )
    renderer = exact(source + BEGIN, tmp_path)

    assert not renderer.grammar.dialect.has_system
    assert delta(renderer, "a", "b") == "<|start|>tool: [a][b]<|stop|><|start|>assistant: "


def test_the_last_message_may_be_closed_only_where_a_turn_is_asked_for(tmp_path: Path) -> None:
    open_end = "{% if not loop.last or add_generation_prompt %}<|stop|>{% endif %}{% endfor %}"
    source = TEMPLATE.replace("{% endif %}<|stop|>{% endfor %}", "{% endif %}" + open_end)
    source = source.replace("<|start|>", "<|im_start|>").replace("<|stop|>", "<|im_end|>\n")

    renderer = exact(source, tmp_path)
    assert delta(renderer, "r") == "\n<|im_start|>tool: r<|im_end|>\n<|im_start|>assistant: "


def test_tools_are_told_by_a_call_of_the_template_where_the_harness_can_t_write_one(
    tmp_path: Path,
) -> None:
    pairs = "{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>{{ v }}</parameter>"
    call = f"<function={{{{ c.function.name }}}}>{pairs}{{% endfor %}}</function>"
    written = f"<seed:tool_call>{call}</seed:tool_call>"
    calls = f"{{% for c in m.tool_calls %}}{written}{{% endfor %}}"
    renderer = exact(TURNS.replace("CALLS", calls) + BEGIN, tmp_path)

    assert renderer.tool_format == ToolFormat.SEED
    told = prompt(renderer)
    assert '"name": "bash"' in told
    assert "<seed:tool_call><function=TOOL><parameter=KEY>VALUE</parameter></function>" in told


ASKED = "(messages | rejectattr('role', 'in', ['assistant', 'tool']) | list)"
REFUSED = {
    "the task is forgotten": (
        TEMPLATE.replace(
            "m.content or ''",
            "'' if not loop.last and m.role == 'user' else m.content or ''",
        ),
        "it rewrites earlier messages",
    ),
    "the turns before the last are forgotten": (
        TEMPLATE.replace(
            "in messages", f"in (messages if messages | length < 5 else {ASKED} + messages[-3:])"
        )
        + "{{ '\\n' }}",
        "it leaves out earlier turns",
    ),
    "lists are changed": (
        "{% set seen = [] %}" + TEMPLATE.replace(BEGIN, "{% set _ = seen.append(1) %}" + BEGIN),
        "transformers renders no template that changes lists",
    ),
    "no token ends a turn": (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}",
        r"no token of the vocabulary ends a turn: behind one it writes '\n\n'",
    ),
    "turns are left out": (
        TEMPLATE.replace("in messages", "in messages if m.role != 'assistant'"),
        "it leaves out what the policy says",
    ),
    "a turn goes on behind its end": (
        TEMPLATE.replace("{% if m.tool_calls %}", "{% if m.tool_calls %}<|stop|><|start|>call: "),
        "a turn with a call holds '<|stop|>', where an engine stops",
    ),
    "calls are in no known format": (
        TEMPLATE.replace("<tool_call>", "[call]").replace("</tool_call>", "[end]"),
        "it writes calls in no known format: ",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_says_what_the_template_does(case: str, tmp_path: Path) -> None:
    source, why = REFUSED[case]

    with pytest.raises(PrerequisiteError) as raised:
        loaded(source, tmp_path)
    assert why in raised.value.why
