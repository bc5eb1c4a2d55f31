"""Conformance: one program for each contract, with a verdict on ours and on every peer."""
