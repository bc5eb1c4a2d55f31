"""The agent: its program, prompts and tools, the call grammar, and exact token ids."""
