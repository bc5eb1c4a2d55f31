"""Grading: a diff in, a verdict over the task's own tests out."""
