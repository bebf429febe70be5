"""Tests of the sources of replies."""
