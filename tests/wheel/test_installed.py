"""The wheel and the sdist, each installed alone in a fresh environment, far from the checkout.

Aspects: every data file of the package is in the wheel; the command, `doctor` and the demo job work
on each supported Python, from the wheel, and on one from the sdist, and as a tool of uv; the
manifests and the type marker are there; each extra can be resolved on each Python, and the
operator's starts; without the extra the error names the cure. Needs a package index.
"""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from checkout import ROOT

pytestmark = pytest.mark.wheel

UV = ROOT / ".uv" / "bin" / "uv"
PYTHONS = ("3.11", "3.12", "3.13")
PACKAGES = ("swe_rollout", "operator/rollout_operator")
EXTRA = "[release-pairs]"


def run(
    *command: str | Path, cwd: Path, check: bool = True, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command without anything of this checkout or its environment."""
    ours = ("PYTHON", "VIRTUAL_ENV", "SWE_ROLLOUT_", "AWS_", "KUBECONFIG", "PATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kept.update(variables)
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**kept, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert not check or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def interpreter(version: str) -> Path:
    """Return the machine's own Python of this version; skip the test if it has none."""
    found = run(UV, "python", "find", "--no-python-downloads", version, cwd=ROOT, check=False)
    places = [Path(found.stdout.strip())] if found.returncode == 0 else []
    places += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    if not places:
        pytest.skip(f"needs Python {version}: uv python install {version}")
    return places[0]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return both."""
    out = tmp_path_factory.mktemp("dist")
    run(UV, "build", "--quiet", "--out-dir", out, ROOT, cwd=out)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def environment(folder: Path, version: str, requirement: str) -> Path:
    """Install a requirement alone; return the environment's `bin`."""
    run(UV, "venv", "--quiet", "--python", interpreter(version), folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, requirement, cwd=folder)
    return python.parent


def play_the_demo(bin_: Path, folder: Path) -> None:
    """Do what the first page says, with nothing but the command."""
    command = bin_ / "swe-rollout"
    version = declared_version()
    assert run(command, "--version", cwd=folder).stdout.strip() == version
    checks = json.loads(run(command, "doctor", "-o", "json", cwd=folder).stdout)["checks"]
    found = {check["name"]: check["verdict"] for check in checks if check["tier"] == "local"}
    assert (found["python"], found["git"], found["uv"]) == ("ok", "ok", "ok")
    run(command, "init", cwd=folder)
    # A cache of its own: what earlier runs have prepared is not there.
    cache = str(folder / "cache")
    played = run(command, "run", "job.yaml", "-o", "json", cwd=folder, XDG_CACHE_HOME=cache)
    state = json.loads(played.stdout)
    assert (state["committed"], state["resolved"], state["masked"]) == (4, 2, 0)
    assert "sqlparse-0.5.2" in run(command, "status", "runs/demo", cwd=folder).stdout
    run(command, "view", "runs/demo", "-O", "demo.html", cwd=folder)
    assert (folder / "demo.html").stat().st_size > 10_000
    printed = run(
        bin_ / "python",
        "-c",
        "from swe_rollout import read_trajectories\n"
        "for t in read_trajectories('runs/demo'): print(t.episode, len(t.token_ids))",
        cwd=folder,
    )
    assert len(printed.stdout.splitlines()) == 4


def declared_version() -> str:
    """Return the version that pyproject.toml says."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return str(version)


def test_every_file_of_the_packages_is_in_the_wheel_and_nothing_else(
    built: tuple[Path, Path],
) -> None:
    listed = run("git", "ls-files", *PACKAGES, cwd=ROOT).stdout.splitlines()
    tracked = {name.removeprefix("operator/") for name in listed}
    with zipfile.ZipFile(built[0]) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert tracked - inside == set()
    assert inside - tracked == set()
    assert "swe_rollout/py.typed" in inside
    assert "swe_rollout/cli/install.yaml" in inside


def test_the_sdist_has_what_a_packager_needs(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= names
    assert {name for name in names if name.startswith(("runs/", ".venv", ".sglang"))} == set()


@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_alone_plays_the_demo(
    version: str, built: tuple[Path, Path], tmp_path: Path
) -> None:
    requirement = f"swe-rollout{EXTRA} @ {built[0].as_uri()}"
    bin_ = environment(tmp_path, version, requirement)

    play_the_demo(bin_, tmp_path)

    manifests = run(bin_ / "swe-rollout", "install", cwd=tmp_path).stdout
    kinds = [each["kind"] for each in yaml.safe_load_all(manifests)]
    assert {"CustomResourceDefinition", "Deployment"} <= set(kinds)


def test_the_sdist_alone_plays_the_demo(built: tuple[Path, Path], tmp_path: Path) -> None:
    requirement = f"swe-rollout{EXTRA} @ {built[1].as_uri()}"
    play_the_demo(environment(tmp_path, PYTHONS[0], requirement), tmp_path)


def extras(wheel: Path) -> list[str]:
    """Return the extras that the wheel says it has."""
    with zipfile.ZipFile(wheel) as opened:
        [name] = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(opened.read(name))
    return metadata.get_all("Provides-Extra") or []


def test_as_a_tool_of_uv_all_commands_are_there(built: tuple[Path, Path], tmp_path: Path) -> None:
    requirement = f"swe-rollout{EXTRA} @ {built[0].as_uri()}"
    python = str(interpreter(PYTHONS[-1]))

    run(
        *(UV, "tool", "install", "--quiet", "--python", python, requirement),
        cwd=tmp_path,
        UV_TOOL_DIR=str(tmp_path / "tools"),
        UV_TOOL_BIN_DIR=str(tmp_path / "bin"),
    )

    commands = {path.name for path in (tmp_path / "bin").iterdir()}
    assert {"swe-rollout", "kubectl-swe_rollout", "kubectl_complete-swe_rollout"} <= commands
    command = tmp_path / "bin" / "swe-rollout"
    assert run(command, "--version", cwd=tmp_path).stdout.strip() == declared_version()
    run(command, "init", cwd=tmp_path)
    checks = json.loads(run(command, "doctor", "-o", "json", cwd=tmp_path).stdout)["checks"]
    assert {each["verdict"] for each in checks if each["name"] == "python"} == {"ok"}


@pytest.mark.parametrize("version", PYTHONS)
def test_every_extra_can_be_resolved(
    version: str, built: tuple[Path, Path], tmp_path: Path
) -> None:
    names = extras(built[0])
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(names) == set(declared["optional-dependencies"])

    for name in names:
        wanted = tmp_path / f"{name}.in"
        wanted.write_text(f"swe-rollout[{name}] @ {built[0].as_uri()}\n", encoding="utf-8")
        found = run(
            *(UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate"),
            *("--python-version", version, str(wanted)),
            cwd=tmp_path,
        ).stdout
        own = [re.split(r"[\[<>=]", each)[0] for each in declared["optional-dependencies"][name]]
        pinned = {line.partition("==")[0] for line in found.splitlines()}
        assert [each for each in own if each != "swe-rollout" and each not in pinned] == []


def test_the_operator_starts_from_the_wheel(built: tuple[Path, Path], tmp_path: Path) -> None:
    requirement = f"swe-rollout[operator] @ {built[0].as_uri()}"
    bin_ = environment(tmp_path, PYTHONS[-1], requirement)

    shown = run(bin_ / "python", "-m", "rollout_operator", "--help", cwd=tmp_path).stdout
    refused = run(bin_ / "python", "-m", "rollout_operator", cwd=tmp_path, check=False)

    assert "--namespace" in shown
    assert refused.returncode == 3, refused.stderr
    assert "WORKER_IMAGE" in refused.stderr


def test_what_is_missing_without_the_extra_is_named_with_its_cure(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    bin_ = environment(tmp_path, PYTHONS[0], f"swe-rollout @ {built[0].as_uri()}")
    run(bin_ / "swe-rollout", "init", cwd=tmp_path)

    # What earlier runs have prepared needs no uv.
    refused = run(
        bin_ / "swe-rollout",
        "run",
        "job.yaml",
        cwd=tmp_path,
        check=False,
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )

    assert refused.returncode == 3, refused.stderr
    assert "swe-rollout[release-pairs]" in refused.stderr
    assert "Traceback" not in refused.stderr
