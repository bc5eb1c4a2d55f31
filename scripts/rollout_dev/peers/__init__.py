"""Other projects that bench and conformance compare with, each behind our own interface.

`tokens`, `parsers` and `strands_loop` have one interface each; `environment` is where they are
installed.
"""
