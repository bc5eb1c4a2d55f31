"""The development cluster: Kubernetes on this machine, with or without Docker, for this checkout.

`__main__` is `scripts/dev-cluster`, `native` the cluster as plain processes, `kind` the one in
Docker; `s3` is `scripts/dev-s3`.
"""
