"""Sandboxes: where the agent works and where patches are graded. One protocol in `base`."""
