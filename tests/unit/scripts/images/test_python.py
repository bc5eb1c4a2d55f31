"""The worker's image: what the checkout is tested with, in the same bytes whoever builds it.

Aspects: versions and packages agree with the locks; two builds give the same layer; the labels;
the Dockerfile's commands do what the builder without Docker does.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from checkout import ROOT
from rollout_dev.dev_cluster.errors import Progress
from rollout_dev.images import program, recipe
from rollout_dev.images.archive import layer_from_trees
from rollout_dev.images.recipe import Application, Debian, Python

WORKER = ROOT / "sandbox_images" / "worker"
PIN = re.compile(r"^([a-z0-9-]+)==(\S+?)(?: ;.*)? \\$", re.MULTILINE)


def pins(name: str) -> set[tuple[str, str]]:
    """Packages and versions of a lock; a package may have one for each Python."""
    return set(PIN.findall((ROOT / "requirements" / name).read_text()))


def test_the_image_has_the_versions_that_are_tested_and_no_tools() -> None:
    image = pins("worker.txt")

    assert len(image) > 50
    assert image <= pins("dev.txt")
    assert "://" not in (ROOT / "requirements" / "worker.txt").read_text(), "it names an index"
    names = {name for name, _ in image}
    assert {"kopf", "prometheus-client", "transformers", "obstore"} <= names
    assert not names & {"uv", "pytest", "mypy", "ruff", "torch"}


def worker() -> tuple[Application, Python]:
    found = recipe.read("worker")
    assert isinstance(found, Application)
    assert isinstance(found.source, Python)
    return found, found.source


def small() -> Python:
    """Return the worker's source with one of its packages, to build it quickly."""
    _, source = worker()
    [operator] = [each for each in source.packages if each.name == "rollout_operator"]
    return Python(
        source.python, source.requirements, (operator,), source.left_out, source.not_compiled
    )


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_two_builds_of_the_code_are_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = []
    for seed in ("1", "2"):  # bytecode must not depend on the order of sets
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / seed))
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        layers.append(program._code("worker", small(), Progress()))

    assert layers[0].diff_id == layers[1].diff_id
    assert layers[0].path.read_bytes() == layers[1].path.read_bytes()


def installed(folder: Path, interpreter: str) -> Path:
    """Make a site as an installer does, whose programs name their Python."""
    name = "tool-1.dist-info/RECORD"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "tool").write_text(f"#!{interpreter}\n")
    (folder / "tool" / "tests").mkdir(parents=True)
    (folder / "tool" / "tests" / "test_a.py").write_text("")
    (folder / "tool" / "a,b.py").write_text("")
    (folder / "tests.py").write_text("")
    (folder / "tool-1.dist-info").mkdir()
    (folder / name).write_text(
        f"bin/tool,sha256={len(interpreter)},1\ntool/tests/test_a.py,,\n"
        f'"tool/a,b.py",,\ntests.py,,\n{name},,\n'
    )
    return folder


def test_what_is_left_out_leaves_no_trace_of_the_machine(tmp_path: Path) -> None:
    sites = [installed(tmp_path / "a", "/usr/bin/python3"), installed(tmp_path / "b", "/v/python")]
    layers = []
    for site in sites:
        program._leave_out(site, worker()[1].left_out)
        layers.append(layer_from_trees({"/site": site}, site.with_suffix(".tar")))

    assert layers[0].diff_id == layers[1].diff_id
    assert set(files(sites[0])) == {"tool/a,b.py", "tests.py", "tool-1.dist-info/RECORD"}
    record = (sites[0] / "tool-1.dist-info" / "RECORD").read_text()
    assert record == '"tool/a,b.py",,\ntests.py,,\ntool-1.dist-info/RECORD,,\n'


def test_the_recipe_says_what_the_project_does() -> None:
    labels = dict(worker()[0].labels)
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, wheel = whole["project"], whole["tool"]["hatch"]["build"]["targets"]["wheel"]

    assert worker()[1].packages == tuple(ROOT / each for each in wheel["packages"])
    prefix = "org.opencontainers.image"
    assert labels[f"{prefix}.version"] == project["version"]
    assert labels[f"{prefix}.licenses"] == project["license"]
    assert labels[f"{prefix}.title"] == "swe-rollout/worker"
    # A time or a commit would make every build another image.
    assert not labels.keys() & {f"{prefix}.created", f"{prefix}.revision"}


DOCKERFILE = (WORKER / "Dockerfile").read_text("utf-8")


def runs() -> list[str]:
    """Return the commands of the Dockerfile."""
    lines = DOCKERFILE.replace("\\\n", " ").splitlines()
    return [line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")]


def sh(words: str, root: Path) -> None:
    """Run the Dockerfile's commands with these words, `root` being the image's root."""
    commands = [each for each in runs() if words in each]
    assert len(commands) == 1
    (command,) = commands
    text = re.sub(r"(?<![\w.])/(site|code|commands)\b", rf"{root}/\1", command)
    subprocess.run(["sh", "-eu", "-c", text], check=True, env={"PATH": os.environ["PATH"]})


def test_the_dockerfile_leaves_out_the_same_files(tmp_path: Path) -> None:
    source = worker()[1]
    ours = installed(tmp_path / "ours", "/x")
    program._leave_out(ours, source.left_out)
    installed(tmp_path / "site", "/x")

    sh("find /site", tmp_path)

    assert files(tmp_path / "site").keys() == files(ours).keys()


def test_the_dockerfile_adds_the_same_command_and_version(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()

    sh("METADATA", tmp_path)
    sh("/commands/swe-rollout", tmp_path)

    assert (tmp_path / "code/swe_rollout.dist-info/METADATA").read_text() == program.metadata()
    command = tmp_path / "commands" / "swe-rollout"
    assert command.read_text() == program.COMMAND
    assert command.stat().st_mode & 0o777 == 0o755


def test_the_dockerfile_compiles_the_same_files(tmp_path: Path) -> None:
    source = worker()[1]
    for folder in ("ours", "code"):
        for name in ("a.py", "numpy/f2py/b.py", "transformers/models/x/c.py"):
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x = 1\n")
    if not program._bytecode(source):
        pytest.skip(f"needs Python {source.python}, the image's own")
    program._compile(source, tmp_path / "ours")

    sh("-s /code", tmp_path)

    assert files(tmp_path / "code") == files(tmp_path / "ours")
    assert sum(name.endswith(".pyc") for name in files(tmp_path / "code")) == 1


def test_the_dockerfile_copies_what_is_there_and_ends_as_another_user() -> None:
    lines = DOCKERFILE.replace("\\\n", " ").splitlines()
    copied = [
        name
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for name in shlex.split(line)[1:-1]
    ]
    ignored = (WORKER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()

    assert len(copied) >= 4
    assert all((ROOT / name).exists() for name in copied)
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)
    assert [line for line in lines if line.startswith("USER ")] == [f"USER {worker()[0].user}"]
    # Mutable names of bases are only defaults.
    froms = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert set(froms) <= {"${PYTHON}", "${DEBIAN}", "worker"}


def test_the_dockerfile_has_what_the_recipe_has() -> None:
    image, source = worker()
    assert isinstance(image.base.source, Debian)

    assert f"ARG PYTHON=python:{source.python}-slim-{image.base.source.suite}" in DOCKERFILE
    assert f"ARG DEBIAN=debian:{image.base.source.suite}-slim" in DOCKERFILE
    assert f"--no-install-recommends {' '.join(image.base.source.packages)} " in DOCKERFILE
    assert DOCKERFILE.count(f"-x {shlex.quote(source.not_compiled)} ") == 2
    assert (
        f"COPY --from=installed /site {program.PACKAGES.format(python=source.python)}\n"
        in DOCKERFILE
    )
    labels = [each for each in image.labels if not each[0].endswith("base.name")]
    for name, value in (*image.environment, *labels):
        assert f'{name}="{value}"' in DOCKERFILE
    assert f"WORKDIR {image.workdir}\n" in DOCKERFILE
    assert f"CMD {json.dumps(list(image.cmd))}\n" in DOCKERFILE
