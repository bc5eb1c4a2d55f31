"""The pages about agents say what runs: their YAML is a job's, their programs keep the contract."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from checkout import ROOT
from doc_steps import blocks
from swe_rollout.agent.presets.rounds import Preset
from swe_rollout.agent.program import AGENTS, Agent
from swe_rollout.extension import import_file
from swe_rollout.spec.agent import PRESETS, AgentSpec
from swe_rollout.spec.fields import all_fields
from swe_rollout.testing.extensions.agents import AgentContract

PAGES = ROOT / "docs" / "reference"
BEFORE_AND_AFTER = "coming-from.md"
MOST_LINES = 20


def agents(page: str) -> list[AgentSpec]:
    found = [yaml.safe_load(text)["agent"] for text in blocks(PAGES / page, "yaml")]
    return [AgentSpec.model_validate(each) for each in found]


@pytest.mark.parametrize("page", ["agents.md", BEFORE_AND_AFTER])
def test_the_yaml_of_a_page_is_a_jobs(page: str) -> None:
    found = agents(page)
    assert found
    for each in found:
        if each.use in PRESETS:
            AGENTS.load(each.use, each.with_)


class TestMigratedAgent(AgentContract):
    """A1-A3, A16: the agent of the page, named and configured as its YAML does."""

    @pytest.fixture
    def agent(self, tmp_path: Path) -> Agent:
        (example,) = blocks(PAGES / BEFORE_AND_AFTER, "python")
        assert len(example.strip().splitlines()) <= MOST_LINES
        if "green" not in AGENTS.names():
            (tmp_path / "green_agent.py").write_text(example)
            import_file(tmp_path / "green_agent.py")
        (named,) = agents(BEFORE_AND_AFTER)
        return AGENTS.load(named.use, named.with_)


class TestOwnPreset(AgentContract):
    """The preset of the page."""

    @pytest.fixture
    def agent(self, tmp_path: Path) -> Agent:
        example = blocks(PAGES / "agents.md", "python")[-1]
        path = tmp_path / f"careful_{tmp_path.name.replace('-', '_')}.py"
        path.write_text(example)
        found = import_file(path).Careful(forbidden="git push")
        assert isinstance(found, Preset)
        return found


def test_the_builder_of_the_page_runs() -> None:
    names: dict[str, object] = {}
    exec(blocks(PAGES / "agents.md", "python")[0], names)  # noqa: S102 - our own page
    assert names["system"] == (
        "You review Rust code.\n\n# Rules\n\nChange nothing.\n\n# Context\n\n- repository: a/b"
    )


def test_every_option_of_a_preset_is_documented() -> None:
    text = (PAGES / "agents.md").read_text("utf-8")
    for name in set(PRESETS) - {"loop"}:
        preset = AGENTS.load(name)
        assert isinstance(preset, Preset)
        for option in preset.model_dump(by_alias=True):
            assert f"`{option}`" in text, (name, option)


FIELD = re.compile(
    r"`((?:agent|dataset|limits|policy|sampling|sandbox|store|workers)\.[A-Za-z.]+)[`:]"
)


def test_every_field_on_the_page_is_one_of_a_job_e4_o7() -> None:
    known = {".".join(field.path[1:]) for field in all_fields()}
    named = FIELD.findall((PAGES / BEFORE_AND_AFTER).read_text("utf-8"))
    assert len(named) > 30
    assert [name for name in named if name not in known] == []
