"""Notebooks: progress in the cell, cards, and calls inside the notebook's loop."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from swe_rollout import LaunchedJob, RolloutJob, RunResult, StoredJob
from swe_rollout.launcher.notebook import NotebookProgress, notebook_progress
from swe_rollout.live.progress import LiveTitle
from unit.cli.run_parts import FAILURE, ended, turn
from unit.cli.store_parts import stored
from unit.launcher.row_parts import SPEC, row

TITLE = LiveTitle("demo <b>", ("sglang",), group_size=lambda _: 2)


class Cell:
    """The output of a cell: what it shows now, and how often that changed."""

    def __init__(self) -> None:
        self.html: list[str] = []
        self.is_closed = False

    def display(self, shown: object, *, display_id: bool) -> Cell:
        assert display_id
        self.update(shown)
        return self

    def update(self, shown: object) -> None:
        if self.is_closed:
            raise RuntimeError("the browser has gone")
        assert hasattr(shown, "_repr_html_")
        self.html.append(shown._repr_html_())


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """A notebook's kernel, as IPython offers it."""
    made, shown = ModuleType("IPython"), ModuleType("IPython.display")
    found = Cell()
    made.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    shown.display = found.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", made)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return found


def job_in(folder: Path) -> RolloutJob:
    """A job that is over at once: it is suspended."""
    (folder / "images" / "demo").mkdir(parents=True)
    (folder / "images" / "demo" / "image.json").write_text("{}")
    sandbox = {"local": {"images": str(folder / "images"), "isolation": "none"}}
    store = {"uri": f"file://{folder}/store"}
    spec = {**SPEC, "store": store, "sandbox": sandbox, "suspend": True}
    return RolloutJob.from_rows([row()], name="mine", spec=spec)


async def test_a_cell_shows_the_progress_in_place_and_its_end(cell: Cell) -> None:
    progress = notebook_progress(TITLE)
    assert isinstance(progress, NotebookProgress)
    async with progress.updating():
        await asyncio.sleep(0)
        progress.planned(2, 0)
        progress.turn(ended(0, 1.0).episode, turn(1.0))
        progress.done(ended(0, 1.0))
        progress.done(ended(1, None, failure=FAILURE))

    assert "0/0" in cell.html[1]
    for words in ("demo &lt;b&gt;", "2/2", "prefix-cache hit 50%", "sandbox_failed", "sandbox 1"):
        assert words in cell.html[-1]
    assert "<b>" not in cell.html[-1].replace("<div><b>", "")


async def test_a_notebook_that_has_gone_stops_nothing(cell: Cell) -> None:
    progress = notebook_progress(TITLE)
    assert progress is not None
    cell.is_closed = True
    async with progress.updating():
        progress.done(ended(0, 1.0))
    assert progress.committed == 1


def test_nothing_is_shown_where_no_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_progress(TITLE) is None
    made = ModuleType("IPython")
    made.get_ipython = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", made)
    assert notebook_progress(TITLE) is None


async def test_a_job_runs_inside_the_notebooks_loop_and_shows_itself(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = job_in(tmp_path).run()

    assert isinstance(result, RunResult)
    assert (result.summary.episodes, result.ran) == (SPEC_SAMPLES, 0)
    assert len(cell.html) >= 2
    assert f"0/{SPEC_SAMPLES}" in cell.html[-1]
    assert "Job mine" in result._repr_html_()


SPEC_SAMPLES = 1


def test_jobs_have_cards_and_one_line_each(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    found = StoredJob(job.spec.store.uri, "mine")
    launched = LaunchedJob("mine", "ns", "s3://rollouts")

    assert repr(found) == f"<StoredJob mine in file://{tmp_path}/store>"
    assert repr(launched) == "<LaunchedJob ns/mine: to s3://rollouts>"
    for made, words in ((job, "RolloutJob mine"), (found, "StoredJob"), (launched, "the current")):
        assert words in made._repr_html_()


def test_stored_jobs_are_frames(tmp_path: Path) -> None:
    pytest.importorskip("pandas", reason="pip install pandas")
    found = StoredJob(f"file://{Path(stored(tmp_path)).parent}", "demo").frame("pandas")
    assert found["episode"].to_list() == ["demo/a/0", "demo/a/1"]
