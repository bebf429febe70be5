"""Traces of others."""
