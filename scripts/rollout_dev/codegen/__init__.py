"""Committed files that are made from the code or recorded from real runs.

`__main__` is `scripts/generate`, the only one that CI compares; `release_pair_tests` and `shots`
are `scripts/record-release-pairs` and `scripts/shots`.
"""
