"""Tests of talking to a model."""
