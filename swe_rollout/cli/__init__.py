"""The command `swe-rollout`: results on stdout, talk on stderr, one module per help panel."""
