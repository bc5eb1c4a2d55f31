"""The report of gradings: a JSON object, complete or as far as the work came."""

from __future__ import annotations

from dataclasses import dataclass, field

from swe_rollout.worker.regrade import Regrading, UnstableTest, flaky_tests


@dataclass(slots=True)
class RegradeReport:
    """What grading the patches of a job again has shown so far."""

    times: int
    """Gradings of each patch."""
    found: list[Regrading] = field(default_factory=list)
    complete: bool = False
    """Whether every patch was graded; False after an interruption."""

    @property
    def ordered(self) -> list[Regrading]:
        """The episodes by instance, then sample."""
        return sorted(self.found, key=lambda each: (each.episode.instance, each.episode.sample))

    @property
    def changed(self) -> int:
        """Episodes with another verdict than before."""
        return sum(each.changed for each in self.found)

    @property
    def broken(self) -> int:
        """Episodes of which a grading broke."""
        return sum(bool(each.failures) for each in self.found)

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain values."""
        graded = [each for each in self.found if not each.skipped]
        return {
            "complete": self.complete,
            "times": self.times,
            "graded": len(graded),
            "skipped": len(self.found) - len(graded),
            "changed": self.changed,
            "broken": self.broken,
            "episodes": [_episode(each) for each in self.ordered],
            "flaky_tests": [
                {
                    "instance_id": each.instance,
                    "test": each.name,
                    "episodes": each.episodes,
                    "flake_rate": each.rate,
                }
                for each in flaky_tests(self.found)
            ],
        }


def _episode(found: Regrading) -> dict[str, object]:
    return {
        "episode": str(found.episode),
        "recorded": found.recorded,
        "verdicts": list(found.statuses),
        "changed": found.changed,
        "unstable_tests": [_test(test) for test in found.unstable],
        "failures": list(found.failures),
        "skipped": found.skipped or None,
    }


def _test(test: UnstableTest) -> dict[str, object]:
    return {
        "test": test.name,
        "recorded": test.recorded,
        "statuses": list(test.statuses),
        "flake_rate": test.flake_rate,
    }
