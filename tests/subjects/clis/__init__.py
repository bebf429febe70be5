"""Agents on the command line, tested."""
