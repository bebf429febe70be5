"""Runs, tested."""
