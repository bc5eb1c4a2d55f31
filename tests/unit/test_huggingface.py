"""Names of models: the truth about each that can't be loaded, within seconds."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swe_rollout.agent.renderer import Renderer
from swe_rollout.engine.scripted.engine import ScriptedEngine
from swe_rollout.errors import PrerequisiteError
from swe_rollout.huggingface import cached_file, check_source, is_path
from swe_rollout.spec.policy import ScriptedPolicy
from swe_rollout.testing.tiny import tokenizer_path

pytestmark = pytest.mark.threat(point=22)

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> str:
    """A hub that refuses connections."""
    for name in (*PROXIES, "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setenv("HF_ENDPOINT", url)
    return url


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["some/model", "model", "models/mine"])
def test_a_hub_that_can_t_be_reached_is_asked_once(name: str) -> None:
    with pytest.raises(PrerequisiteError, match=f"no tokenizer at {name}") as caught:
        Renderer.load(name)
    assert f"there is no folder {name} beside the job file" in caught.value.why
    assert "127.0.0.1 can't be reached (Connection refused)" in caught.value.why


@pytest.mark.usefixtures("hub")
def test_the_scripted_engine_asks_once_too() -> None:
    with pytest.raises(PrerequisiteError, match="can't be reached"):
        ScriptedEngine(ScriptedPolicy(), (), "some/model", tool_format="hermes")


def test_a_hub_that_never_responds_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose packets are dropped; the resolver may hang as well."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)

    def hang(*_: object, **__: object) -> socket.socket:
        time.sleep(60)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", hang)
    monkeypatch.setattr("swe_rollout.huggingface._PATIENCE_S", 0.1)
    with pytest.raises(PrerequisiteError, match="does not respond"):
        check_source("some/model")


@pytest.mark.parametrize(
    "name", ["/no/such/folder", "./nothing", "../nothing", "~/nothing-here", "a/b/c", "a b/c", "a/"]
)
def test_a_missing_folder_is_said_to_be_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_path(name)
    with pytest.raises(PrerequisiteError) as caught:
        Renderer.load(name)
    assert caught.value.why.startswith("the folder ")
    assert caught.value.why.endswith(" does not exist")
    assert "Repo id" not in str(caught.value)


def test_the_first_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(PrerequisiteError) as caught:
        Renderer.load(f"{tmp_path}/models/mine/checkpoint-100")
    assert caught.value.why == f"the folder {tmp_path}/models/mine does not exist"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(PrerequisiteError, match="is a file, not a folder"):
        Renderer.load(f"{tmp_path}/tokenizer.json")


def test_a_hub_that_the_environment_forbids_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PrerequisiteError, match="HF_HUB_OFFLINE forbids") as caught:
        check_source("some/model")
    assert caught.value.fix.startswith("unset HF_HUB_OFFLINE")


def test_a_tokenizer_in_the_cache_needs_no_hub(hub: str, tmp_path: Path) -> None:
    """The cache's place is read once, at import, so this runs in a process of its own."""
    snapshot = tmp_path / "models--some--model" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    for file in tokenizer_path().iterdir():
        (snapshot / file.name).write_bytes(file.read_bytes())
    (snapshot / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    refs = tmp_path / "models--some--model" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123")
    code = (
        "from swe_rollout.huggingface import cached_file\n"
        "print(cached_file('some/model', 'tokenizer.json'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HF_HUB_CACHE": str(tmp_path), "HF_ENDPOINT": hub},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(snapshot / "tokenizer.json")
    assert cached_file("some/other", "tokenizer.json") is None
