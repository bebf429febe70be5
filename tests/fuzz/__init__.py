"""Fuzz tests of every parser: see __main__.py."""
