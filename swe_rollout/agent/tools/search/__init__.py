"""The one search: `find` lists files, the worker chooses among them, `grep` reads them.

All of it works with busybox. What a pattern costs is the sandbox's own time and memory, and ends
with the call; what is listed, kept and shown is bounded, and what was left out is said. `pattern`
and `glob` say what is looked for, `tree` lists files, `grep` and `spans` find lines in them;
`faces`, `claude` and `listing` are what policies call.
"""
