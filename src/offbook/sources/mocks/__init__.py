"""Mocks: replies in a file, one a line, selected by a pattern or by their order."""
