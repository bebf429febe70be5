"""Goldens of our own components, replayed."""
