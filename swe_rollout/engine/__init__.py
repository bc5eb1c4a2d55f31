"""Engines: what samples tokens. One protocol in `base`, one file per implementation."""
