"""The controller of RolloutJobs: kopf triggers, `reconcile` decides, `execute` acts."""
