"""Command-line agents."""
