"""Tests of the importers of third-party traces."""
