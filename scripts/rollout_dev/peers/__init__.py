"""Other projects that bench and conformance compare with, each behind an interface of ours.

`tokens`, `parsers` and `strands_loop` have one interface each; `environment` is where
they are installed.
"""
