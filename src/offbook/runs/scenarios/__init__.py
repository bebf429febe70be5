"""Scenario files: read, played, and tried again."""
