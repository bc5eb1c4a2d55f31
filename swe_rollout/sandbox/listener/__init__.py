"""The listener, a door from a sandbox's loopback to its worker: a static program.

`gateway.door` brings it into the sandbox. `scripts/build-supervisor` builds it as well.
"""
