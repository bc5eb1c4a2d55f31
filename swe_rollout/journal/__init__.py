"""The journal of an episode: what the outside world answered, so that a run can be resumed."""
