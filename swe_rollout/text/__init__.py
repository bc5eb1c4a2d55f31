"""Text for people: escaping, redaction, numbers, cards for notebooks, log lines."""
