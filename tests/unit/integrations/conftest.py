"""Renderers are loaded once: each session of a test opens one, which takes a second of probing."""

from __future__ import annotations

import pytest

from swe_rollout.agent.renderer import Renderer
from swe_rollout.worker.engines import EngineSetup

_load = EngineSetup.renderer
_loaded: dict[str, Renderer] = {}


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def renderer(setup: EngineSetup, tokenizer: str) -> Renderer:
        key = f"{setup.policy.tokenizer or tokenizer} {setup.agent.tool_format}"
        if key not in _loaded:
            _loaded[key] = _load(setup, tokenizer)
        return _loaded[key]

    monkeypatch.setattr(EngineSetup, "renderer", renderer)
