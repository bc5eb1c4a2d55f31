"""What trainers take from episodes: samples, groups and advantages. Values and pure functions."""
