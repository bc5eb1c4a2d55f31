"""Tools of MCP servers.

`options` is a job's description of a server, including its tools: they are pinned, so the prompt is
the same in every episode and on every worker, and no server can change it. A server either runs in
the sandbox and communicates over stdio (`stdio`, through the pipes of `relay`), or is reached from
the worker over HTTP (`http`). `results` turns results into text, `tool` makes the tools that the
policy calls, and `pin` converts the tools that a server lists for the job file.
"""
