"""`make stats`: figures, and the budget that `make lint` holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkout import ROOT
from rollout_dev.stats import Budget, Limit, Module, circles, main, read_modules

SOURCE = '''\
"""A module."""
from typing import TYPE_CHECKING

import swe_rollout.a.one

if TYPE_CHECKING:
    from swe_rollout.b import late


def alone():  # noqa: ANN201
    from swe_rollout.c import lazy
    def inner() -> None:
        try:
            lazy()
        except (ValueError, Exception):
            pass
'''
BUDGET = """\
[limits]
source_lines = { at_most = 10 }
module_lines_p50 = { at_least = 100, today = 2 }
import_circles = { at_most = 0 }

[rooms]
"swe_rollout/a" = 4
"tests/unit/a" = 9
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    write(tmp_path / "swe_rollout/a/one.py", 2)
    write(tmp_path / "swe_rollout/a/two.py", 2)
    write(tmp_path / "tests/unit/a/deep/test_one.py", 5)
    (tmp_path / "budget.toml").write_text(BUDGET)
    return tmp_path


def write(path: Path, lines: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 1\n" * lines)


def test_a_module_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "swe_rollout" / "module.py"
    path.parent.mkdir()
    path.write_text(SOURCE)

    module = Module.read(tmp_path, path)

    assert (module.lines, sorted(module.functions)) == (16, [5, 7])
    assert (module.ignores, module.broad_excepts) == (1, 1)
    assert module.imports == {"typing.TYPE_CHECKING", "swe_rollout.a.one"}


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("swe_rollout/episode.py", "swe_rollout"),
        ("swe_rollout/agent/tools/base.py", "swe_rollout/agent"),
        ("operator/rollout_operator/kube.py", "operator"),
        ("tests/conftest.py", "tests"),
        ("tests/unit/test_docs.py", "tests/unit"),
        ("tests/unit/agent/tools/test_base.py", "tests/unit/agent"),
        ("scripts/rollout_dev/stats.py", "scripts"),
        ("scripts/rollout_dev/bench/loop.py", "scripts/bench"),
    ],
)
def test_a_module_belongs_to_a_room(tmp_path: Path, path: str, room: str) -> None:
    write(tmp_path / path, 1)
    assert Module.read(tmp_path, tmp_path / path).room == room


def test_a_circle_of_imports_is_found_and_one_through_a_function_is_none(tmp_path: Path) -> None:
    for name, text in {
        "one": "from swe_rollout.two import x\n",
        "two": "import swe_rollout.three\n",
        "three": "if 1:\n    from swe_rollout import one\n",
        "four": "from swe_rollout import one\ndef f():\n    import swe_rollout.five\n",
        "five": "from swe_rollout import four\n",
    }.items():
        write(tmp_path / f"swe_rollout/{name}.py", 1)
        (tmp_path / f"swe_rollout/{name}.py").write_text(text)

    (circle,) = circles(read_modules(tmp_path))

    assert set(circle) == {f"swe_rollout.{name}" for name in ("one", "two", "three")}


def test_a_room_over_its_budget_is_named_with_what_to_do(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check"], checkout) == 0
    assert capsys.readouterr() == ("", "")
    write(checkout / "swe_rollout/a/three.py", 3)
    write(checkout / "scripts/rollout_dev/new.py", 1)

    assert main(["--check"], checkout) == 1

    told = capsys.readouterr().err
    assert "swe_rollout/a has 7 lines, 3 over its budget: delete something there" in told
    assert '--raise swe_rollout/a"' in told
    assert "scripts has 1 lines, 1 over its budget" in told


def test_writing_lowers_and_raises_only_what_is_named(checkout: Path) -> None:
    write(checkout / "swe_rollout/a/three.py", 3)

    assert main(["--write"], checkout) == 1
    assert '"swe_rollout/a" = 4\n"tests/unit/a" = 5\n' in (checkout / "budget.toml").read_text()

    assert main(["--write", "--raise", "swe_rollout/a"], checkout) == 0
    assert '"swe_rollout/a" = 7\n' in (checkout / "budget.toml").read_text()


def test_a_limit_that_is_not_reached_may_only_get_better(checkout: Path) -> None:
    assert Limit(100, 80, is_floor=True).holds(80)
    assert not Limit(100, 80, is_floor=True).holds(79)
    assert Limit(10, 20).tightened(15, may_loosen=False) == Limit(10, 15)
    assert Limit(10, 20).tightened(25, may_loosen=False) == Limit(10, 20)
    assert Limit(10, 20).tightened(25, may_loosen=True) == Limit(10, 25)
    assert Limit(10, 20).tightened(9, may_loosen=False) == Limit(10)

    write(checkout / "swe_rollout/a/two.py", 1)
    assert main(["--check"], checkout) == 1
    write(checkout / "swe_rollout/a/one.py", 1)
    write(checkout / "swe_rollout/a/two.py", 9)
    assert main(["--write", "--raise", "swe_rollout/a"], checkout) == 0
    assert (
        "module_lines_p50 = { at_least = 100, today = 5 }" in (checkout / "budget.toml").read_text()
    )


def test_the_figures_stand_beside_their_limits(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], checkout) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "source_lines 4 at most 10" in printed
    assert "module_lines_p50 2 at least 100 (today 2)" in printed
    assert "tests/unit/a 5 budget 9" in printed


def test_our_own_budget_can_be_read_and_written() -> None:
    path = ROOT / "budget.toml"
    assert Budget.read(path).text() == path.read_text("utf-8")
