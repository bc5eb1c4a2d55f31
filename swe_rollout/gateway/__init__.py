"""The gateway: agents that speak a chat API, over exact tokens."""
