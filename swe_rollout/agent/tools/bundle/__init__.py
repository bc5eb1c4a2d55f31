"""Tool bundles: programs that run in the sandbox, described by a manifest.

`archive` reads the description of the tools and packs a folder into one file that travels with the
job, and `tool` unpacks it in a sandbox and calls its programs.
"""
