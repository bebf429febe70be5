"""Tests of golden fixtures, specs and their validation."""
