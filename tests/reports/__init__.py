"""Traces told to somebody."""
