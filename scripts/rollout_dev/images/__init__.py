"""Build this repository's images without a daemon or a registry.

`__main__` is `scripts/build-images`; `rootfs` makes the base layers, `program` adds applications,
`release_pairs` adds tasks; `archive` writes the files.
"""
