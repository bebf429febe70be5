"""Agents that are commands: each with its recipe, in a home of its own."""
