"""Reads what other tools have written down of a run, one file for each format."""
