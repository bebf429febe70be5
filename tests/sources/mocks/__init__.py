"""Mocks: replies written down line by line."""
