"""Requests to a model and replies from it, independent of any provider."""
