"""Agents of real frameworks."""
