"""Call formats of a user's own, for tests: one that a template writes, and one that none does."""

from __future__ import annotations

from swe_rollout.agent.parsers.json_call import JsonGrammar, Shape

ODD = JsonGrammar("[call]", "[end]", shape=Shape.OBJECT)
NOT_ODD = JsonGrammar("[calls]", "[end]", shape=Shape.OBJECT)
