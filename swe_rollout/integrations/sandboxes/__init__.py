"""Our sandboxes behind the protocols of other frameworks, one module for each.

`box` is the shared part. docs/how-to/sandboxes-for-others.md shows how to use each one.
"""
