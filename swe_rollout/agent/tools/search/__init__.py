"""The one search: `find` lists files, the worker chooses among them, `grep` reads them.

All of it works with busybox. A costly pattern uses only the sandbox's time and memory, until the
end of the call; the sizes of lists and output are bounded, and omissions are reported. `pattern`
and `glob` describe what to search for, `tree` lists files, `grep` and `spans` find lines in them;
policies call `faces`, `claude` and `listing`.
"""
