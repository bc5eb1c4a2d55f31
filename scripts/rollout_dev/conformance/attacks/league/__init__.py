"""The attack league: policies that want an undeserved reward, against ways to grade."""
