"""The Python face of a job: `from swe_rollout import RolloutJob`.

`job` has what a person writes, `launched` what runs on a cluster; both are thin and synchronous.
`remote` is the asynchronous part, which the command line uses too.
"""

from swe_rollout.launcher.job import RolloutJob
from swe_rollout.launcher.launched import LaunchedJob
from swe_rollout.launcher.outcome import JobFailedError, JobRefusedError, JobTimeoutError

__all__ = ["JobFailedError", "JobRefusedError", "JobTimeoutError", "LaunchedJob", "RolloutJob"]
