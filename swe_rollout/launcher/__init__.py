"""Launch and follow jobs from Python: `from swe_rollout import RolloutJob`.

`job` is the class that users work with, `launched_job` the handle of a job on a cluster; both are
thin and synchronous. `remote` is the asynchronous part, also used by the command line.
"""
