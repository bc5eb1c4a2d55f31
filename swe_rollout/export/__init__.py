"""Trajectories in the forms that trainers and notebooks read."""
