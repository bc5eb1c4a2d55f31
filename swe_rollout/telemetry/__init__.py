"""Metrics for Prometheus and spans for OpenTelemetry, made from what an `Observer` is told.

`setup.observing` opens what the command line and the environment ask for; `wrappers` let an engine
and sandboxes tell an observer. The packages of both systems are imported only here, when asked for.
"""
