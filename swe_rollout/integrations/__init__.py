"""Adapters to trainers and agent frameworks: thin layers over a session of a job."""
