"""The agent: one loop on exact token ids, its prompts, its tools, and the grammar of its calls."""
