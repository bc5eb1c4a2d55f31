"""How long things have been seen: what time limits count, whatever clocks do."""

from __future__ import annotations

from rollout_operator.sightings import Sightings, Stage

POD = ("uid", Stage.THERE)
GOING = ("uid", Stage.DELETING)


def test_what_is_seen_again_grows_older_and_what_is_gone_is_forgotten() -> None:
    sightings = Sightings()

    assert sightings.update([POD], 100.0) == {POD: 0.0}
    assert sightings.update([POD, GOING], 107.0) == {POD: 7.0, GOING: 0.0}
    assert sightings.update([], 108.0) == {}
    assert sightings.update([POD], 109.0) == {POD: 0.0}
