"""Ready harnesses: what a job says, what its sandboxes get, and what an installation leaves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
import yaml
from pydantic import ValidationError

from swe_rollout.errors import PrerequisiteError, UsageError
from swe_rollout.spec.agent import AgentSpec, ReadyHarness
from swe_rollout.spec.job import RolloutJobSpec
from swe_rollout.worker import harnesses
from swe_rollout.worker.harnesses import folder_of, install, program_of, ready, with_bundle


def job(agent: object, **sandbox: object) -> RolloutJobSpec:
    return RolloutJobSpec.model_validate(
        {
            "dataset": {"releasePairs": {}},
            "policy": {"scripted": {}},
            "agent": agent,
            "sandbox": sandbox or {"local": {}},
        }
    )


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_ready_ones_are_those_that_a_job_may_name() -> None:
    assert sorted(ready()) == sorted(get_args(ReadyHarness))


@pytest.mark.parametrize("name", ready())
def test_a_name_alone_brings_the_command(name: str) -> None:
    agent = AgentSpec.model_validate({"harness": name})
    use, parameters = program_of(agent)
    assert (use, parameters["command"]) == ("harness", ready()[name].command)
    assert agent.model_dump(by_alias=True)["harness"] == name


def test_a_command_of_ones_own_is_one_too() -> None:
    agent = AgentSpec.model_validate({"harness": {"command": "mine", "env": {"A": "1"}}})
    assert program_of(agent) == ("harness", {"command": "mine", "env": {"A": "1"}})
    assert AgentSpec.model_validate(agent.model_dump(by_alias=True)) == agent
    assert program_of(AgentSpec()) == ("loop", {})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"harness": "kodex"}, "'codex'"),
        ({"harness": {}}, "exactly one of name and command"),
        ({"harness": {"name": "codex", "command": "true"}}, "exactly one of name and command"),
        ({"harness": "codex", "use": "swe"}, "use can't be set beside"),
        ({"harness": "codex", "tools": ["bash"], "systemPrompt": "x"}, "tools, systemPrompt"),
        ({"use": "harness"}, "name the program in `harness`"),
    ],
)
def test_what_is_wrong_is_told(given: object, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        AgentSpec.model_validate(given)


def test_local_sandboxes_get_the_folder_of_the_cache_once_it_is_there() -> None:
    spec = job({"harness": "codex"})
    with pytest.raises(PrerequisiteError) as caught:
        with_bundle(spec)
    assert caught.value.fix == "swe-rollout harness install codex"
    folder_of("codex").mkdir(parents=True)
    local = with_bundle(spec).local
    assert local is not None
    assert local.bundles == {"/opt/harness": str(folder_of("codex"))}


@pytest.mark.parametrize(
    "sandbox", [{"local": {"bundles": {"/opt/harness": "x"}}}, {"kodo": {}}, {"pod": {}}]
)
def test_other_jobs_keep_their_sandboxes(sandbox: dict[str, object]) -> None:
    agent = {"harness": {"command": "true"}} if "pod" in sandbox else {"harness": "codex"}
    spec = job(agent, **sandbox)
    assert with_bundle(spec) is spec.sandbox


def test_pods_need_the_name_of_an_image() -> None:
    with pytest.raises(
        PrerequisiteError, match="neither an image nor a claim is named for /opt/harness"
    ):
        with_bundle(job({"harness": "codex"}, pod={}))
    named = job({"harness": "codex"}, pod={"bundles": {"/opt/harness": "mine/codex:1"}})
    assert with_bundle(named) is named.sandbox
    claim = {"/opt/harness": "swe-rollout-bundle-codex-1"}
    claimed = job({"harness": "codex"}, pod={"bundleClaims": claim})
    assert with_bundle(claimed) is claimed.sandbox


def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Put programs in the place of all that this machine has."""
    (tmp_path / "bin").mkdir()
    for name, text in scripts.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")


def test_an_installation_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _programs(tmp_path, monkeypatch, npm="touch half; echo no such version >&2; exit 7")
    with pytest.raises(PrerequisiteError, match="npm did not install it") as caught:
        install("codex", folder_of("codex"))
    assert "code 7: no such version" in str(caught.value)
    assert not list(folder_of("codex").parent.iterdir())


def test_an_installation_is_whole_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _programs(tmp_path, monkeypatch, npm='echo "$@" >asked')
    folder = folder_of("codex")
    install("codex", folder)
    assert ready()["codex"].npm in (folder / "asked").read_text()
    with pytest.raises(UsageError, match="is not empty"):
        install("codex", folder)


def test_executables_get_a_c_library_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "node_modules/@anthropic-ai/claude-code-linux-x64"
    _programs(tmp_path, monkeypatch, npm=f"mkdir -p {place}; cp /usr/bin/env {place}/claude", uv="")
    asked: list[str] = []
    run = harnesses._run

    def recorded(command: Sequence[str], cwd: Path) -> str:
        if not command[0].endswith("/patchelf"):
            return run(command, cwd)
        asked.extend(command)
        return ""

    monkeypatch.setattr(harnesses, "_run", recorded)
    folder = folder_of("claude-code")
    install("claude-code", folder)
    loader = asked[asked.index("--set-interpreter") + 1]
    assert Path(loader).parent == Path("/opt/harness/runtime/lib")
    assert asked[asked.index("--set-rpath") + 1] == str(Path(loader).parent)
    libraries = [each.name for each in (folder / "runtime" / "lib").iterdir()]
    assert {"libc.so.6", Path(loader).name} <= set(libraries)
    assert asked[-1].endswith(f"{place}/claude")


def test_the_module_of_a_bundle_runs_without_a_variable_that_others_would_read(
    tmp_path: Path,
) -> None:
    packages = tmp_path / "packages" / "mine"
    packages.mkdir(parents=True)
    packages.joinpath("__init__.py").touch()
    packages.joinpath("run.py").write_text("import os, sys; print(sys.argv[1:], dict(os.environ))")
    text = harnesses._RUN.replace("/opt/harness", str(tmp_path))
    command = [sys.executable, "-c", text, "mine.run", "-t", "a task"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={})
    assert done.stdout.startswith("['-t', 'a task']")
    assert str(tmp_path) not in done.stdout


@pytest.mark.parametrize("harness", ready().values(), ids=ready())
def test_a_command_is_a_script_that_a_shell_can_read(harness: harnesses.Ready) -> None:
    subprocess.run(["sh", "-n", "-c", harness.command], check=True)
    assert yaml.safe_load(yaml.safe_dump(harness.command)) == harness.command
    assert "TASK" in harness.command
    assert (harness.runtime == "python") == bool(harness.pip)
