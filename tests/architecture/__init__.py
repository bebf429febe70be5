"""Tests of the structure of the project: import contracts, public names, lock files."""
