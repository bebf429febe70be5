"""Real pi: the behaviour that it shares with the Python session, and its own."""
