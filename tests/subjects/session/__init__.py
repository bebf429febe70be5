"""The agent session."""
