"""Contract tests for extensions: subclass one and provide your extension."""
