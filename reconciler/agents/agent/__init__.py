"""The agent: observer and reconciler of one cluster in one process, which runs inside it."""
