"""The controller of RolloutJobs: kopf triggers, `reconcile` decides, `actions` are carried out."""
