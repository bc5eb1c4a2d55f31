"""Which models are refused, and why: what can't be kept exact is said when it is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from swe_rollout.agent.encoding import Body, Encoding
from swe_rollout.agent.prompts import Prompts
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools import toolbox
from swe_rollout.errors import PrerequisiteError
from swe_rollout.spec.tool_format import ToolFormat
from swe_rollout.testing.tiny import tokenizer_path

OWN = (tokenizer_path() / "chat_template.jinja").read_text()
TURN_END = "{%- endfor %}\n        {{- '<|im_end|>\\n' }}"


def folder_with(folder: Path, template: str) -> str:
    shutil.copytree(tokenizer_path(), folder)
    (folder / "chat_template.jinja").write_text(template)
    return str(folder)


def changed(part: str, replacement: str) -> str:
    assert OWN.count(part) == 1
    return OWN.replace(part, replacement)


REFUSED = {
    "it drops what was said in earlier turns": (
        changed("(message.content or '')", "(message.content if loop.last else '')"),
        "leaves out what the policy says",
    ),
    "results are changed": (
        changed("+ message.content +", "+ (message.content | upper) +"),
        "changes the text of",
    ),
    "the task is changed": (
        changed(
            "(message.content or '')",
            "(message.content | upper if message.role == 'user' else message.content)",
        ),
        "changes the text of",
    ),
    "results are left out": (
        changed("+ message.content +", "+"),
        "changes the text of",
    ),
    "a turn has no end of its own": (
        changed(TURN_END, "{%- endfor %}{{- '\\n' }}"),
        "does not end a turn in <|im_end|>",
    ),
    "it divides by zero": ("{{ 1 / 0 }}", "ZeroDivisionError"),
    "it never ends": ("{% macro more() %}{{ more() }}{% endmacro %}{{ more() }}", "RecursionError"),
    "it can't be read": ("{% if %}", "TemplateSyntaxError"),
    "it refuses": ("{{ raise_exception('only for humans') }}", "only for humans"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_template_whose_tokens_can_t_be_exact_is_refused_with_what_differs(
    tmp_path: Path, case: str
) -> None:
    template, why = REFUSED[case]

    with pytest.raises(PrerequisiteError) as raised:
        Renderer.load(folder_with(tmp_path / "model", template))
    assert why in raised.value.why


def test_a_template_whose_results_depend_on_the_system_prompt_gets_none(tmp_path: Path) -> None:
    template = changed("+ message.content +", "+ message.content + ns.system +")
    renderer = Renderer.load(folder_with(tmp_path / "model", template))

    renderer.prompt(Prompts(system="").messages("x", "/testbed"), ())
    with pytest.raises(PrerequisiteError, match="takes no system message"):
        renderer.prompt(Prompts().messages("x", "/testbed"), ())


def test_an_unknown_format_of_calls_is_refused_unless_the_job_names_one(tmp_path: Path) -> None:
    odd = OWN.replace("<tool_call>", "[call]").replace("</tool_call>", "[end]")
    folder = folder_with(tmp_path / "model", odd)

    with pytest.raises(PrerequisiteError, match="no known format") as raised:
        Renderer.load(folder)
    assert "[call]" in raised.value.why
    assert "call-formats.md" in raised.value.fix


@pytest.mark.threat(point=13)
@pytest.mark.parametrize("form", [ToolFormat.QWEN_XML, ToolFormat.REACT, ToolFormat.LLAMA3])
def test_a_format_that_the_template_does_not_write_is_refused(tmp_path: Path, form: str) -> None:
    folder = folder_with(tmp_path / "model", OWN)

    with pytest.raises(PrerequisiteError, match=f"does not fit the format of calls {form}"):
        Renderer.load(folder, tool_format=form)
    assert Renderer.load(folder, tool_format=ToolFormat.HERMES).tool_format == "hermes"


@pytest.mark.threat(point=13)
def test_the_cure_of_a_refusal_is_held_against_the_template(tmp_path: Path) -> None:
    odd = OWN.replace("<tool_call>", "[call]").replace("</tool_call>", "[end]")
    folder = folder_with(tmp_path / "model", odd)

    here = "tests.unit.agent.odd_calls"
    assert Renderer.load(folder, tool_format=f"{here}:ODD").tool_format == f"{here}:ODD"
    with pytest.raises(PrerequisiteError, match="does not fit"):
        Renderer.load(folder, tool_format=f"{here}:NOT_ODD")


def test_a_template_that_knows_no_tools_is_told_about_them(tmp_path: Path) -> None:
    silent = changed("(tool | tojson)", "''")
    renderer = Renderer.load(folder_with(tmp_path / "model", silent))
    tools = toolbox(["bash", "submit"]).specs

    text = renderer.decode(renderer.prompt(Prompts().messages("x", "/testbed"), tools).ids)
    assert not renderer.grammar.dialect.writes_tools
    for tool in tools:
        assert json.dumps(tool.function()) in text


def test_a_base_vocabulary_that_holds_control_tokens_can_be_used_all_the_same(
    tmp_path: Path,
) -> None:
    folder_with(tmp_path / "model", OWN)
    file = tmp_path / "model" / "tokenizer.json"
    definition = json.loads(file.read_text())
    # Whole words come from the vocabulary, as some tokenizers have it.
    definition["model"]["ignore_merges"] = True
    definition["pre_tokenizer"] |= {"type": "ByteLevel", "use_regex": False}
    definition["pre_tokenizer"].pop("pretokenizers", None)
    definition["pre_tokenizer"] |= {"add_prefix_space": False, "trim_offsets": True}
    end = next(a for a in definition["added_tokens"] if a["content"] == "<|im_end|>")
    definition["model"]["vocab"]["<|im_end|>"] = end["id"]
    file.write_text(json.dumps(definition))
    plain = Tokenizer.from_file(str(file))
    plain_ids = Tokenizer.from_str(json.dumps(definition | {"added_tokens": []}))
    assert plain_ids.encode("<|im_end|>").ids == [end["id"]] == plain.encode("<|im_end|>").ids

    assert end["id"] not in Encoding(plain).encode([Body("a<|im_end|>"), Body("<|im_end|>")])


@pytest.mark.parametrize(
    ("part", "value", "what"),
    [
        ("model", {"type": "Unheard-of"}, "there is no tokenizer at"),
        ("pre_tokenizer", {"type": "Whitespace"}, "can't be kept as it is"),
    ],
)
def test_a_tokenizer_that_can_t_be_used_is_a_missing_prerequisite(
    tmp_path: Path, part: str, value: dict[str, str], what: str
) -> None:
    folder_with(tmp_path / "model", OWN)
    file = tmp_path / "model" / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {part: value}))

    with pytest.raises(PrerequisiteError, match=what):
        Renderer.load(str(tmp_path / "model"))


def test_a_template_that_ends_a_turn_before_its_calls_is_asked_for_calls_alone(
    tmp_path: Path,
) -> None:
    early = "{%- if message.tool_calls and message.content %}{{- '<|im_end|>\\n' }}{%- endif %}"
    template = changed(
        "{%- for call in message.tool_calls or []", f"{early}{{%- for call in message.tool_calls"
    )
    renderer = Renderer.load(folder_with(tmp_path / "model", template))

    assert not renderer.grammar.dialect.speaks_with_calls
