"""Sandboxes as Kubernetes pods: `provider` starts them; `warm_pool` has some ready."""
