"""Command-line agents, each run as a process in an isolated home."""
