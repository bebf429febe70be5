"""Agents of Python frameworks, driven without changes."""
