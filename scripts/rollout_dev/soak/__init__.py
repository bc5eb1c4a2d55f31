"""The soak: a long run of scripted episodes, and what grows meanwhile.

`machine` counts what a run holds, `slopes` says what grows, and `engine` is the run's policy, which
counts what only the inside of the process shows. `scripts/conformance soak` puts them together.
"""
