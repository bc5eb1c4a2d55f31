"""Fuzzing: test every surface that reads untrusted input, with limits on time and memory.

`surface` defines surfaces, `surfaces` contains them, `mutate` makes inputs, `child` runs them in a
separate process, and `campaign` watches that process, minimises findings and keeps their inputs.
"""
