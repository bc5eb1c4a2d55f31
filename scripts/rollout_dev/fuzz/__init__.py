"""Fuzzing: every surface that reads what is not trusted, with bounds of time and memory.

`surface` says what a surface is, `surfaces` holds them, `mutate` makes inputs, `child` runs them in
a process of its own, `campaign` watches it, minimises what it finds and keeps the inputs of it.
"""
