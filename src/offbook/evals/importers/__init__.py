"""Reads the eval suites of other tools, one file for each tool."""
