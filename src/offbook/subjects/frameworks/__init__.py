"""Agents that are written in some framework, driven as they are."""
