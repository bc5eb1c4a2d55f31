"""Whatever names and ids a policy writes, its results are rendered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollout_dev import families
from swe_rollout.agent.renderer import Renderer
from swe_rollout.agent.tools.base import ToolSpec
from swe_rollout.types.turn import CallStatus, ToolCall

TOOLS = (ToolSpec("submit", ""), ToolSpec("bash", ""))
REFUSES_LONG_IDS = (
    "{%- for m in messages %}{%- for c in m.tool_calls or [] %}"
    "{%- if c.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{%- endif %}"
    "{%- if c.function.name not in tools | map(attribute='function.name') | list %}"
    "{{ raise_exception('no such tool') }}{%- endif %}{%- endfor %}{%- endfor %}"
)
NAMES = ("mistral", "mistral_v11", "kimi_k2", "qwen3", "llama3", "gpt_oss", "deepseek_v3_1")


@pytest.fixture(scope="module")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Renderer]:
    root = tmp_path_factory.mktemp("families")
    return {name: Renderer.load(str(families.write(name, root / name))) for name in NAMES}


def answer(renderer: Renderer, *calls: ToolCall) -> str:
    tools = TOOLS
    delta = renderer.delta(
        renderer.grammar.end_id, calls, results=[f"r{i}" for i, _ in enumerate(calls)], tools=tools
    )
    return renderer.decode(delta.ids)


def call(name: str = "bash", call_id: str = "") -> ToolCall:
    return ToolCall(CallStatus.OK, "", name, id=call_id)


@pytest.mark.threat(point=11)
@pytest.mark.parametrize(
    "call_id", ["", "x", "a" * 8, "a" * 10, "a" * 128, "functions.bash:0", "é"]
)
def test_an_id_that_a_template_refuses_becomes_ours(
    renderers: dict[str, Renderer], call_id: str
) -> None:
    text = answer(renderers["mistral"], call(call_id=call_id))

    assert '"call_id": "call00000"' in text
    assert "r0" in text


@pytest.mark.threat(point=11)
def test_an_id_that_a_template_takes_is_the_policys(renderers: dict[str, Renderer]) -> None:
    assert '"call_id": "abcDEF123"' in answer(renderers["mistral"], call(call_id="abcDEF123"))
    assert "functions.bash:7" in answer(renderers["kimi_k2"], call(call_id="functions.bash:7"))


@pytest.mark.threat(point=11)
def test_a_name_that_a_template_refuses_becomes_that_of_a_tool(tmp_path: Path) -> None:
    folder = families.write("qwen3", tmp_path / "strict")
    file = folder / "chat_template.jinja"
    file.write_text(REFUSES_LONG_IDS + file.read_text("utf-8"), "utf-8")
    renderer = Renderer.load(str(folder))

    text = answer(renderer, call("python", "x"), call("bash", "y" * 30), call("", ""))

    assert all(result in text for result in ("r0", "r1", "r2"))


@pytest.mark.threat(point=11)
@pytest.mark.parametrize("family", NAMES)
@settings(max_examples=25, deadline=None)
@given(
    calls=st.lists(
        st.builds(
            call,
            st.text(max_size=12) | st.sampled_from(["bash", "python", "a.b", "-", "invalid"]),
            st.text(max_size=12) | st.from_regex(r"[A-Za-z0-9_.:-]{1,12}", fullmatch=True),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_no_name_and_no_id_stops_an_answer(
    renderers: dict[str, Renderer], family: str, calls: list[ToolCall]
) -> None:
    renderer = renderers[family]
    answered = calls[:1] if renderer.grammar.dialect.one_call else calls

    text = answer(renderer, *answered)

    assert all(f"r{index}" in text for index, _ in enumerate(answered))
