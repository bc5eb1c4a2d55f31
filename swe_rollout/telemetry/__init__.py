"""Metrics for Prometheus and spans for OpenTelemetry, made from the events of a run.

`setup.observing` opens what the command line and the environment request. The packages of both
systems are imported only here, and only on request.
"""
