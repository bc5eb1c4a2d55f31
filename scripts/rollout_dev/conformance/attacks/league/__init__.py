"""The attack league: policies that want a reward they have not earned, against ways to grade."""
