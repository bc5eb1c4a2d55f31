"""Where tasks come from: files of rows in SWE-bench's form, and pairs of releases.

`base.load` is the door; everything behind it ends in `swe_rollout.instance.Instance`.
"""
