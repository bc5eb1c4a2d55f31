"""Conformance checks that a model's tokens can be kept exact."""
