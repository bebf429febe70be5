"""Cassettes."""
