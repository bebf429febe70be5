"""Tests of generated models."""
