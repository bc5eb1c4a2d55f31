"""Text for people: escaping, redaction, number formats, notebook cards and log lines."""
