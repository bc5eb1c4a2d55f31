"""A copied environment names its own files, and the copy of the repository."""

from __future__ import annotations

import os
from pathlib import Path

from swe_rollout.sandbox.local.plain import relocate


def test_scripts_and_editable_installs_are_corrected_and_nothing_else(tmp_path: Path) -> None:
    env = tmp_path / "copy"
    site = env / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (env / "bin").mkdir()
    (env / "bin" / "python").symlink_to("/usr/bin/python3")
    (env / "bin" / "pytest").write_text("#!/a/venv/bin/python\n")
    (env / "bin" / "pytest").chmod(0o755)
    (site / "__editable__.x.pth").write_text("/a/flask/src\n/a/flask-other\n")
    (site / "__editable___x_finder.py").write_text("MAPPING = {'x': '/a/flask/src/x'}\n")
    (site / "module.py").write_text("PATH = '/a/flask'\n")
    original = tmp_path / "hard-link"
    os.link(env / "bin" / "pytest", original)

    relocate(env, {"/a/venv": env, "/a/flask": tmp_path / "tree"})

    assert (env / "bin" / "pytest").read_text() == f"#!{env}/bin/python\n"
    assert os.access(env / "bin" / "pytest", os.X_OK)
    assert original.read_text() == "#!/a/venv/bin/python\n"
    assert (site / "__editable__.x.pth").read_text() == f"{tmp_path}/tree/src\n/a/flask-other\n"
    assert f"'{tmp_path}/tree/src/x'" in (site / "__editable___x_finder.py").read_text()
    assert (site / "module.py").read_text() == "PATH = '/a/flask'\n"


def test_a_folder_that_is_no_environment_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_text("#!/a/bin/x\n")
    relocate(tmp_path, {"/a": tmp_path})
    assert (tmp_path / "bin" / "tool").read_text() == "#!/a/bin/x\n"
