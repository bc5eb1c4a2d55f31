"""The sandbox images of this repository, built without a daemon or a registry.

`cli` is `scripts/build-images`; `rootfs` makes the file systems. The archives themselves are
written by `swe_rollout.sandbox.image`.
"""
