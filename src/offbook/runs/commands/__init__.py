"""Whole commands, whose clients find their model in the environment."""
