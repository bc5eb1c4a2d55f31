"""A real SGLang server without a GPU, for tests: `__main__` is `scripts/sglang-cpu`.

`launch`, `teacher` and the `tiny_…` run by their path in SGLang's own environment.
"""
