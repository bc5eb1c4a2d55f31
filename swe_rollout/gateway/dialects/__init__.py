"""The APIs that harnesses speak. Each reads and writes its own form; none knows another."""
