"""Agents of real frameworks, driven as they are."""
