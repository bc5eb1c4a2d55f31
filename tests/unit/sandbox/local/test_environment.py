"""A Python environment says what it is made of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from swe_rollout.errors import PrerequisiteError
from swe_rollout.sandbox.local.environment import read_environment
from unit.sandbox.local.checkout_parts import make_environment


def test_a_virtual_environment_names_its_base_and_its_editable_installs(tmp_path: Path) -> None:
    source = tmp_path / "source" / "src"
    source.mkdir(parents=True)
    python = make_environment(tmp_path / "venv", editable=source)
    found = read_environment(python)
    assert found.prefix == tmp_path / "venv"
    assert found.base == Path(sys.base_prefix)
    assert found.is_virtual
    assert found.version == sys.version_info[:2]
    assert found.sources == (source,)
    assert "pytest" in found.modules
    assert "pytest" in found.programs
    assert not {"tox", "tox_current_env"} & found.modules


def test_the_folder_of_an_environment_will_do(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv", runner=False)
    assert read_environment(tmp_path / "venv") == read_environment(python)
    assert "pytest" not in read_environment(python).modules


def test_an_editable_install_is_also_known_by_its_metadata(tmp_path: Path) -> None:
    python = make_environment(tmp_path / "venv", runner=False)
    info = next((tmp_path / "venv").glob("lib/python3*/site-packages")) / "own-1.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_text(
        '{"url": "file:///some/where%20else", "dir_info": {"editable": true}}'
    )
    assert read_environment(python).sources == (Path("/some/where else"),)


@pytest.mark.parametrize("content", [None, "#!/bin/sh\nexit 3\n", "#!/bin/sh\necho '{}'\n"])
def test_what_is_no_python_is_refused(tmp_path: Path, content: str | None) -> None:
    python = tmp_path / "python"
    if content is not None:
        python.write_text(content)
        python.chmod(0o755)
    with pytest.raises(PrerequisiteError, match="no Python that runs") as caught:
        read_environment(python)
    assert "VENV/bin/python" in (caught.value.fix or "")
